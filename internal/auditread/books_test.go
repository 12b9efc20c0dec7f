package auditread

import (
	"log/slog"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// Messages are settled in any order. The position is before the first one that is not settled.
func TestBooks(t *testing.T) {
	journal, err := audit.OpenJournal(audit.JournalOptions{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = journal.Close() }()
	books := &books{journal: journal, maxEvents: 3, maxBytes: 100, settled: make(chan struct{}, 1)}
	seqs := map[uint64]uint64{}
	track := func(number uint64) { seqs[number] = books.track(number, 10) }
	settle := func(number uint64) { books.settle(seqs[number]) }
	check := func(what string, number uint64, inFlight int) {
		t.Helper()
		if at := books.Settled(); at.Number != number || at.Journal != journal.ID() && number > 0 ||
			books.InFlight() != inFlight {
			t.Errorf("%s: %+v with %d in flight, want %d and %d", what, at, books.InFlight(), number, inFlight)
		}
	}
	track(0) // a gap before the first event
	check("a gap that is not settled", 0, 1)
	if at := books.Settled(); at.Journal != "" {
		t.Errorf("a position before the gap is settled: %+v", at)
	}
	settle(0)
	books.skip(2)
	check("filtered", 2, 0)
	track(3)
	books.skip(4)
	books.skip(9)
	track(10)
	track(11)
	check("nothing settled", 2, 4)
	settle(11)
	settle(10)
	check("the first one not settled", 2, 4)
	books.settle(0) // a message that an earlier process has left on disk
	settle(3)
	settle(3)
	check("all settled", 11, 0)
	for number := uint64(12); number < 15; number++ {
		if !books.hasRoom() {
			t.Errorf("no room for %d", number)
		}
		track(number)
	}
	if books.hasRoom() {
		t.Error("there is room for a fourth event in flight")
	}
	settle(12)
	books.track(15, 100)
	settle(13)
	settle(14)
	if books.hasRoom() {
		t.Error("there is room for more bytes")
	}
}
