package kafkalog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testkafka.Main(m)) }

// harness describes logs in topics of a broker.
func harness(addrs []string) logtest.Harness {
	logs := 0
	return logtest.Harness{
		New: func(t *testing.T) func(t *testing.T) statelog.Log {
			logs++
			topic := fmt.Sprintf("%s.%d", strings.ReplaceAll(t.Name(), "/", "."), logs)
			return func(t *testing.T) statelog.Log { return open(t, addrs, topic) }
		},
		TooLarge: 2 << 20,
	}
}

// TestFake runs the suite with an imitation of a broker, which is always there and fast.
func TestFake(t *testing.T) { logtest.Run(t, harness(newFake(t, kfake.NumBrokers(3)).ListenAddrs())) }

// TestKafka runs the suite with Kafka.
func TestKafka(t *testing.T) { logtest.Run(t, harness([]string{testkafka.ForTest(t).Addr()})) }

func newFake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// open opens the log in a topic as another process.
func open(t *testing.T, addrs []string, topic string) *Log {
	t.Helper()
	l, err := New(Config{
		Config: wire.Config{Brokers: addrs, RequestTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)},
		Topic:  topic, CreateTopics: &CreateTopics{ReplicationFactor: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustFence(t *testing.T, l *Log) int64 {
	t.Helper()
	end, err := l.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func mustAppend(t *testing.T, l *Log, after int64, record string) int64 {
	t.Helper()
	end, err := l.Append(t.Context(), after, []byte(record))
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// records returns the content of a log.
func records(ctx context.Context, t *testing.T, l *Log) (all []string) {
	t.Helper()
	if _, err := l.Read(ctx, 0, func(_ int64, record []byte) error {
		all = append(all, string(record))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
