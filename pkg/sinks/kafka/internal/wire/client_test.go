package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func newFake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestAskGoesOn: a question goes to the next broker; the error of all of them names each.
func TestAskGoesOn(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "events"))
	c := newClient(t, Config{Brokers: []string{"127.0.0.1:1", fake.ListenAddrs()[0]}})
	topics, err := c.Topics(t.Context(), "events", "missing")
	if err != nil || len(topics) != 2 {
		t.Fatalf("%+v, %v", topics, err)
	}
	slices.SortFunc(topics, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	if !topics[0].Ready() || len(topics[0].Leaders) != 2 {
		t.Errorf("%+v", topics[0])
	}
	if topics[1].Ready() || !errors.Is(topics[1].Err, kafkago.UnknownTopicOrPartition) {
		t.Errorf("%+v", topics[1])
	}
	if diff := cmp.Diff(fake.ListenAddrs(), c.Addresses()); diff != "" || c.ClusterID() == "" {
		t.Errorf("cluster %q (-want +got):\n%s", c.ClusterID(), diff)
	}
	if c.WorksWithout(fake.ListenAddrs()[0]) || !c.WorksWithout("127.0.0.1:1") {
		t.Error("WorksWithout does not know which broker answered")
	}

	none := newClient(t, Config{Brokers: []string{"127.0.0.1:1", "127.0.0.1:2"}})
	_, err = none.Topics(t.Context())
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("no broker: %v", err)
	}
}

// TestClosedWhileIdle: a request on a connection that the broker has closed may have been sent. A question, which may
// be sent twice, is asked again.
func TestClosedWhileIdle(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	addr := fake.ListenAddrs()[0]
	var cut atomic.Pointer[net.Conn]
	c := newClient(
		t,
		Config{Brokers: []string{addr}, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			cut.Store(&nc)
			return nc, err
		}},
	)
	end := func() {
		t.Helper()
		if err := (*cut.Load()).Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second request shows that the connection is kept
		if _, err := c.Topics(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	end()
	if _, err := c.Topics(t.Context()); err != nil {
		t.Errorf("a question after the end of the connection: %v", err)
	}
	if _, err := c.Send(t.Context(), addr, &metadata.Request{}); err != nil {
		t.Fatal(err)
	}
	end()
	if _, err := c.Send(t.Context(), addr, &metadata.Request{}); err == nil || !Sent(err) {
		t.Errorf("a request after the end of the connection: %v", err)
	}
	if _, err := c.Send(t.Context(), "127.0.0.1:1", &metadata.Request{}); err == nil || Sent(err) {
		t.Errorf("a request that found no broker: %v", err)
	}
}

func TestCodeErrors(t *testing.T) {
	c := newClient(t, Config{SASL: SASL{Mechanism: MechanismPlain, Username: "alice"}})
	for _, test := range []struct {
		code     kafkago.Error
		rejected bool
		words    string
	}{
		{kafkago.LeaderNotAvailable, false, "[5]"},
		{kafkago.NotLeaderForPartition, false, "[6]"},
		{kafkago.RequestTimedOut, false, "[7]"},
		{kafkago.NotController, false, "[41]"},
		{kafkago.NotEnoughReplicas, true, "number of in-sync replicas"},
		{kafkago.UnsupportedCompressionType, true, "compression type"},
		{kafkago.InvalidTimestamp, true, "timestamp"},
		{kafkago.UnsupportedForMessageFormat, true, "message format version"},
		{kafkago.TopicAuthorizationFailed, true, `give user "alice" the permissions Describe and Write`},
		{kafkago.ClusterAuthorizationFailed, true, `give user "alice" the permissions Describe and Write`},
	} {
		err := c.CodeError("topic t", test.code, "the broker's words")
		if !errors.Is(err, test.code) || sinks.IsRejected(err) != test.rejected {
			t.Errorf("%v: rejected %t", err, sinks.IsRejected(err))
		}
		for _, words := range []string{"topic t", "the broker's words", test.words} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%q lacks %q", err, words)
			}
		}
	}
	for code, key := range map[kafkago.Error]string{
		kafkago.InvalidReplicationFactor: "kafka.createTopics.replicationFactor",
		kafkago.InvalidPartitionNumber:   "kafka.createTopics.partitions",
		kafkago.InvalidConfiguration:     "kafka.createTopics.config",
		kafkago.InvalidTopic:             "kafka.createTopics",
	} {
		if e, ok := errors.AsType[*sinks.ConnectError](c.notCreated("t", code, "")); !ok || e.Key != key {
			t.Errorf("%v: %+v", code, e)
		}
	}
}

func TestWho(t *testing.T) {
	for who, s := range map[string]SASL{
		`user "alice"`: {Mechanism: "SCRAM-SHA-512", Username: "alice"},
		"the IAM role": {Mechanism: MechanismIAM},
		"the client (which does not authenticate)": {},
	} {
		if got := s.Who(); got != who {
			t.Errorf("%+v: %s", s, got)
		}
	}
}

// TestCreateTopic: existing topics stay unchanged, a dry run creates nothing, and new topics have leaders.
func TestCreateTopic(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s.old"))
	c := newClient(t, Config{Brokers: fake.ListenAddrs()})
	names := []string{"k8s.old", "k8s.new", "other"}
	how := &NewTopic{Partitions: 3, Config: map[string]string{"cleanup.policy": "compact"}}
	create := func(dryRun bool) {
		t.Helper()
		for _, name := range names {
			if err := c.CreateTopic(t.Context(), name, how, dryRun); err != nil {
				t.Fatal(err)
			}
		}
	}
	like := func(want ...string) {
		t.Helper()
		topics, err := c.TopicsLike(t.Context(), "k8s.{resource}")
		var got []string
		for _, topic := range topics {
			got = append(got, topic.Name)
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	create(true)
	like("k8s.old")
	create(false)
	like("k8s.new", "k8s.old")
	topics, err := c.Topics(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		want := 3
		if topic.Name == "k8s.old" {
			want = 1
		}
		if !topic.Ready() || len(topic.Leaders) != want {
			t.Errorf("%+v", topic)
		}
	}
	settings, err := c.TopicSettings(t.Context(), "k8s.new")
	if err != nil || settings["cleanup.policy"] != "compact" {
		t.Errorf("%v, %v", settings, err)
	}
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidReplicationFactor})
	if err := c.CreateTopic(t.Context(), "a", how, false); !errors.Is(err, kafkago.InvalidReplicationFactor) {
		t.Error(err)
	}
}
