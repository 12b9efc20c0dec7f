package kafka

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestDataSurvivesRestartAndKill(t *testing.T) {
	b := NewForTest(t)
	CreateTopic(t, b.Addr(), "kept", 2, nil)
	produce(t, b.Addr(), "kept", "a", "b")

	addr := b.Addr()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	produce(t, addr, "kept", "c")
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	want := [][]string{{"a", "b", "c"}, {"a", "b", "c"}}
	if diff := cmp.Diff(want, values(t, addr, "kept")); diff != "" {
		t.Errorf("after a restart and a crash (-want +got):\n%s", diff)
	}
}

// TestCluster: with one of three nodes down, a topic takes records. Markers of transactions are not read, also not at
// the end.
func TestCluster(t *testing.T) {
	nodes := NewClusterForTest(t, nil)
	addr := nodes[0].Addr()
	CreateTopic(t, addr, "replicated", 2, nil)
	produce(t, addr, "replicated", "a")
	if err := nodes[2].Kill(); err != nil {
		t.Fatal(err)
	}
	produce(t, addr, "replicated", "b")
	if err := nodes[2].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("test"), kgo.DefaultProduceTopic("replicated"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("c")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := client.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"a", "b", "c"}, {"a", "b"}}
	if diff := cmp.Diff(want, values(t, addr, "replicated")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// values are the values of a topic's records, by partition.
func values(t *testing.T, addr, topic string) (values [][]string) {
	t.Helper()
	for _, records := range ReadAll(t, addr, topic) {
		var of []string
		for _, r := range records {
			of = append(of, string(r.Value))
		}
		values = append(values, of)
	}
	return values
}

func TestSharedBrokerIsOne(t *testing.T) {
	first, second := ForTest(t), ForTest(t)
	if first != second {
		t.Errorf("two brokers, at %s and %s", first.Addr(), second.Addr())
	}
}

func TestPausedBrokerAnswersNothing(t *testing.T) {
	b := NewForTest(t)
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := b.probe(t.Context()); err == nil {
		t.Error("a paused broker answered")
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := b.awaitReady(t.Context()); err != nil { // its controller can have given it up during the pause
		t.Errorf("a resumed broker does not answer: %v", err)
	}
}

func TestBadConfigurationIsReported(t *testing.T) {
	ForTest(t) // skips where there is no Java
	b, err := Start(t.Context(), t.TempDir(), "log.segment.bytes=nonsense")
	if err == nil {
		_ = b.Kill()
		t.Fatal("a broker with a bad configuration started")
	}
	if !strings.Contains(err.Error(), "log.segment.bytes") {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
}

// TestMissingTools: without Java a test is skipped, and in CI it fails.
func TestMissingTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := install(t.Context())
	for ci, want := range map[string]string{"": "skipped", "true": "failed"} {
		t.Setenv("CI", ci)
		fake := &fakeTB{TB: t}
		skipOrFail(fake, err)
		if fake.outcome != want {
			t.Errorf("CI=%q: the test is %q, want %q", ci, fake.outcome, want)
		}
	}
}

type fakeTB struct {
	testing.TB
	outcome string
}

func (f *fakeTB) Helper()      {}
func (f *fakeTB) Skip(...any)  { f.outcome = "skipped" }
func (f *fakeTB) Fatal(...any) { f.outcome = "failed" }

// produce writes the values to both partitions of the topic.
func produce(t *testing.T, addr, topic string, values ...string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for p := range int32(2) {
		for _, value := range values {
			record := &kgo.Record{Topic: topic, Partition: p, Value: []byte(value)}
			if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
				t.Fatal(fmt.Errorf("producing %s: %w", value, err))
			}
		}
	}
}

func TestLogIsKept(t *testing.T) {
	b := ForTest(t)
	if _, err := os.Stat(b.LogFile()); err != nil {
		t.Errorf("the shared broker has no log: %v", err)
	}
}
