package kafka

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestWriteLate: a batch of a producer that was fenced is rejected because of its epoch, and for no other reason.
func TestWriteLate(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "late"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	addr := fake.ListenAddrs()[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("late"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	last := ReadAll(t, addr, "late")[0][0]
	if err := WriteLate(t.Context(), addr, last); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Errorf("without a fence: %v", err)
	}
	last.ProducerEpoch--
	if err := WriteLate(t.Context(), addr, last); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("with a fence: %v", err)
	}
	last.ProducerID, last.ProducerEpoch = -1, -1 // not idempotent: shows that the batch is well-formed
	if err := WriteLate(t.Context(), addr, last); err != nil {
		t.Error(err)
	}
	if all := ReadAll(t, addr, "late")[0]; len(all) != 2 || string(all[1].Value) != "x" {
		t.Errorf("%d records", len(all))
	}
}
