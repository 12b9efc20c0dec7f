package logfile

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/deltabridge/deltabridge/test/scale"
)

// model compares a reader with what a writer does to its log.
type model struct {
	*writer
	reader *Reader
	stored json.RawMessage // the position that a restart has
	at     json.RawMessage
	seen   map[int]bool
	last   int          // the last event since the restart
	gone   map[int]bool // events that were removed before they were read
	cut    bool         // something was removed or truncated
	losses int
}

func (m *model) pull() {
	m.t.Helper()
	items, at := pull(m.t, m.reader, m.stored)
	m.at = at
	for _, i := range items {
		switch {
		case i.lost != "":
			m.losses++
		case i.event <= m.last:
			m.t.Fatalf("event %d came after %d", i.event, m.last)
		default:
			m.last, m.seen[i.event] = i.event, true
		}
	}
}

// restart continues from the stored position, which may be an older one.
func (m *model) restart() {
	m.reader.Close()
	m.reader = newReader(m.t, m.path, 0)
	m.last = 0
}

func (m *model) remove(events []int) {
	m.cut = true
	for _, n := range events {
		if !m.seen[n] {
			m.gone[n] = true
		}
	}
}

// step does what a byte says.
func (m *model) step(op byte) {
	m.t.Helper()
	switch op % 16 {
	default:
		m.write(1 + int(op/16))
	case 4, 5:
		if _, err := os.Stat(m.path); err == nil {
			m.rotate()
		}
		if op >= 32 {
			m.append("")
		}
	case 6, 7:
		if n := len(m.backups); n > 0 {
			m.compress(m.backups[int(op/16)%n], int(op/16)%3)
		}
	case 8:
		m.half()
	case 9:
		if len(m.backups) > 0 && op >= 128 {
			m.remove(m.prune())
		}
	case 10:
		if _, err := os.Stat(m.path); err == nil && op >= 192 {
			m.pull() // a truncated log that has grown is a different one only to a reader that has read of it
			m.remove(m.truncate())
		}
	case 11, 12:
		m.pull()
	case 13:
		m.pull()
		m.stored = m.at
	case 14:
		m.restart() // kill
	case 15:
		m.stored = m.at // a stop
		m.restart()
	}
}

func (m *model) check() {
	m.t.Helper()
	m.write(1)
	m.pull()
	m.reader.Close()
	missing := 0
	for n := 1; n <= m.written; n++ {
		if !m.seen[n] {
			missing++
		}
	}
	switch {
	case missing > len(m.gone)+m.halves:
		m.t.Fatalf("%d of %d events are missing, but only %d were removed", missing, m.written, len(m.gone)+m.halves)
	case missing > 0 && m.losses == 0 && (!m.cut || missing > m.halves): // a half line may be gone before it was read
		m.t.Fatalf("%d events are missing, and no loss is reported", missing)
	case !m.cut && m.halves == 0 && m.losses > 0:
		m.t.Fatalf("nothing was removed, but %d losses are reported", m.losses)
	}
}

func runModel(t *testing.T, ops []byte) {
	t.Helper()
	w := newWriter(t)
	m := &model{writer: w, reader: newReader(t, w.path, 0), seen: map[int]bool{}, gone: map[int]bool{}}
	m.step(0) // a reader that has read nothing cannot know what was removed
	m.step(13)
	for _, op := range ops {
		if testing.Verbose() {
			t.Log(op%16, op/16, m.written, m.last, m.losses, string(m.at))
		}
		m.step(op)
	}
	m.check()
}

// Whatever happens to the log and to the reader, each event is read, or a loss is reported, and no event is read twice
// without a restart.
func TestModel(t *testing.T) {
	for seed := range uint64(scale.Of(100, 5000)) {
		if seed == 0 {
			seed = 4156 // a file that is so short that its beginning does not identify it
		}
		random := rand.New(rand.NewPCG(seed, 19))
		ops := make([]byte, 5+random.IntN(60))
		for n := range ops {
			ops[n] = byte(random.Uint32())
		}
		if !t.Run("", func(t *testing.T) { runModel(t, ops) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{0, 11, 4, 13, 6, 14, 9, 15, 200, 12})
	f.Fuzz(func(t *testing.T, ops []byte) { runModel(t, ops[:min(len(ops), 200)]) })
}
