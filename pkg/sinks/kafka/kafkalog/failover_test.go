package kafkalog

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestFailover: the fence holds on the next leader, even if the records up to the one that fenced are deleted.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three brokers")
	}
	brokers := testkafka.NewClusterForTest(t, nil)
	var addrs []string
	for _, b := range brokers {
		addrs = append(addrs, b.Addr())
	}
	process := func() *Log {
		l, err := New(Config{
			Config: wire.Config{Brokers: addrs, RequestTimeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)},
			Topic:  "state", CreateTopics: &CreateTopics{ReplicationFactor: 3},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	stale := process()
	old := mustAppend(t, stale, mustFence(t, stale), "1")
	l := process()
	fenced := mustFence(t, l)
	after := mustAppend(t, l, fenced, "2")
	if err := l.Truncate(t.Context(), fenced); err != nil {
		t.Fatal(err)
	}

	leader := slices.Index(addrs, l.part.Leader)
	if err := brokers[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := stale.Append(t.Context(), old, []byte("stale")); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("a fenced process: %v", err)
	}
	after = mustAppend(t, l, after, "3")
	if l.part.Leader == addrs[leader] {
		t.Error("there is no new leader")
	}
	next := process()
	end := mustFence(t, next)
	if _, err := l.Append(t.Context(), after, []byte("stale")); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("a fenced process: %v", err)
	}
	mustAppend(t, next, end, "4")
	if got := records(t.Context(), t, next); !slices.Equal(got, []string{"2", "3", "4"}) {
		t.Errorf("the log contains %q", got)
	}
}
