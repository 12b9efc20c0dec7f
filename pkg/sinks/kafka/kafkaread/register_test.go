package kafkaread

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

func newFake(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *wire.Client) {
	t.Helper()
	fake, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	client := wire.New(&wire.Config{
		Brokers: fake.ListenAddrs(), RequestTimeout: 10 * time.Second, Dial: reach.Dial,
		Prober: &reach.Prober{Dial: reach.Dial}, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(client.Close)
	return fake, client
}

// TestRegister: the first one has the name until it is handed over; without the topic nobody has it, and asking for it
// does not create the topic.
func TestRegister(t *testing.T) {
	fake, client := newFake(t)
	r := &Names{Client: client, Template: "k8s.{resource}"}
	owner := func(want string) {
		t.Helper()
		found, err := r.Registered(t.Context(), "prod")
		if err != nil || found.UID != want || (want != "" && time.Since(found.Since) > time.Minute) {
			t.Errorf("%+v, %v; want %q", found, err, want)
		}
	}
	add := func(uid, replaced string) {
		t.Helper()
		if err := r.Register(t.Context(), sinks.Owner{Cluster: "prod", UID: uid}, replaced); err != nil {
			t.Fatal(err)
		}
	}
	owner("")
	if topics, err := client.Topics(t.Context(), RegisterTopic); err != nil || topics[0].Err == nil {
		t.Errorf("asking has created the topic: %+v, %v", topics, err)
	}
	add("one", "")
	owner("one")
	add("two", "") // too late
	owner("one")
	add("two", "three") // not from the owner
	owner("one")
	add("two", "one")
	owner("two")
	other := *r
	other.Template = "other"
	if found, err := other.Registered(t.Context(), "prod"); err != nil || found.UID != "" {
		t.Errorf("of another template: %+v, %v", found, err)
	}

	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.TopicAuthorizationFailed})
	if _, err := r.Registered(t.Context(), "prod"); !errors.Is(err, sinks.ErrNoRegister) {
		t.Errorf("without permission: %v", err)
	}
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable})
	if _, err := r.Registered(t.Context(), "prod"); err == nil || errors.Is(err, sinks.ErrNoRegister) {
		t.Errorf("without a leader: %v", err)
	}
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed})
	err := r.Register(t.Context(), sinks.Owner{Cluster: "stage", UID: "one"}, "")
	if !errors.Is(err, sinks.ErrNoRegister) {
		t.Errorf("without permission to write: %v", err)
	}
}
