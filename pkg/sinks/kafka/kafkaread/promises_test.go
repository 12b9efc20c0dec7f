package kafkaread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// TestRegisteredAtOnce: of two clusters that register a name at the same time, the one whose record is first has it,
// whatever its record contains. Whoever replaces it removes both.
func TestRegisteredAtOnce(t *testing.T) {
	_, client := newFake(t, kfake.SeedTopics(1, RegisterTopic))
	n := &Names{Client: client, Template: "k8s"}
	p, err := n.partition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ cluster, uid, value string }{
		{"prod-2", "zero", `{}`}, // another name that begins with the same letters
		{"prod", "one", `no JSON`},
		{"prod", "two", `{"uid":"someone else"}`},
		{"prod", "one", `{}`}, // keeps its place
	} {
		var b wire.Batch
		b.Reset(time.Now())
		b.Append(n.key(r.cluster, r.uid), []byte(r.value))
		if err := n.write(t.Context(), p, &b); err != nil {
			t.Fatal(err)
		}
	}
	belongsTo := func(name, want string) {
		t.Helper()
		if found, err := n.Registered(t.Context(), name); err != nil || found.UID != want {
			t.Errorf("%s belongs to %+v, %v; want %q", name, found, err, want)
		}
	}
	belongsTo("prod", "one")
	if err := n.Register(t.Context(), sinks.Owner{Cluster: "prod", UID: "three"}, "one"); err != nil {
		t.Fatal(err)
	}
	belongsTo("prod", "three")
	belongsTo("prod-2", "zero")
}

// TestNoRegister: only what stays as it is means that names can't be registered.
func TestNoRegister(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{kafkago.TopicAuthorizationFailed, true},
		{fmt.Errorf("create it: %w", kafkago.InvalidReplicationFactor), true},
		{kafkago.LeaderNotAvailable, false},
		{kafkago.NotEnoughReplicas, false},
		{io.EOF, false},
	} {
		err := noRegister(c.err)
		if !errors.Is(err, c.err) || errors.Is(err, sinks.ErrNoRegister) != c.want ||
			strings.Contains(err.Error(), RegisterTopic) != c.want {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

func TestRecord(t *testing.T) {
	header := func(name, value string) protocol.Header { return protocol.Header{Key: name, Value: []byte(value)} }
	for _, c := range []struct {
		name       string
		value      string
		headers    []protocol.Header
		attributes map[string]string
		foreign    string
	}{
		{
			"binary", `{}`,
			[]protocol.Header{header("ce_id", "a"), header("Content-Type", "application/json"), header("trace", "1")},
			map[string]string{"id": "a", "datacontenttype": "application/json"},
			"",
		},
		{
			"structured", `{"specversion":"1.0","id":"a","data":{}}`,
			[]protocol.Header{header("content-type", "application/cloudevents+json; charset=UTF-8")},
			map[string]string{"specversion": "1.0", "id": "a"},
			"",
		},
		{"tombstone", "", nil, nil, ""},
		{
			"another program's", `{}`,
			[]protocol.Header{header("id", "a")},
			map[string]string{},
			"the record has no header ce_id",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &protocol.Record{
				Offset: 7, Headers: c.headers, Time: time.Unix(1, 0), Key: protocol.NewBytes([]byte("k")),
			}
			if c.name != "tombstone" {
				m.Value = protocol.NewBytes([]byte(c.value))
			}
			r, err := (&partition{Partition: wire.Partition{Topic: "t", ID: 2}}).recordOf(m)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.attributes, r.Attributes); diff != "" || r.Place != "t/2 #7" || r.Key != "k" ||
				!r.Stored.Equal(m.Time) || (r.Data == nil) != (c.name == "tombstone") {
				t.Errorf("%s at %v, key %q, %q (-want +got):\n%s", r.Place, r.Stored, r.Key, r.Data, diff)
			}
			if c.foreign == "" && r.Foreign != nil || c.foreign != "" && (r.Foreign == nil || r.Foreign.Error() != c.foreign) {
				t.Errorf("foreign: %v, want %q", r.Foreign, c.foreign)
			}
		})
	}
}

// TestOldestFirst: records of several partitions are merged by time, and none is handed over while an older one can
// still come from a partition that is not read to its end.
func TestOldestFirst(t *testing.T) {
	at := func(seconds ...int64) (queue []*diagnose.Record) {
		for _, s := range seconds {
			queue = append(queue, &diagnose.Record{Stored: time.Unix(s, 0)})
		}
		return queue
	}
	late, early := &partition{next: 2, end: 2, queue: at(3, 4)}, &partition{next: 1, end: 5, queue: at(2)}
	r := &reading{partitions: map[string]*partition{"late": late, "early": early, "read": {next: 9, end: 9}}}
	if r.oldest() != early || r.behind() != 7 {
		t.Errorf("%+v is the oldest, %d are behind", r.oldest(), r.behind())
	}
	early.queue = nil
	if p := r.oldest(); p != nil {
		t.Errorf("%+v is handed over, although records before it may come", p)
	}
	early.next = early.end
	if r.oldest() != late || r.behind() != 2 {
		t.Errorf("%+v is the oldest, %d are behind", r.oldest(), r.behind())
	}
}

// TestReadNothing: what there is no topic for is an error with a remedy, unless it is awaited.
func TestReadNothing(t *testing.T) {
	fake, client := newFake(t, kfake.SeedTopics(1, "other", "k8s.pods"))
	read := func(ctx context.Context, template string, follow bool) error {
		return Read(ctx, client, []string{template}, diagnose.ReadOptions{Follow: follow}, func(*diagnose.Record) error {
			return errors.New("there is no record")
		})
	}
	err := read(t.Context(), "events.{resource}", false)
	if e, ok := errors.AsType[*sinks.ConnectError](err); !ok || !strings.Contains(e.Remedy, "kafka.createTopics") {
		t.Errorf("no topic: %v", err)
	}
	if err := read(t.Context(), "k8s.{resource}", false); err != nil {
		t.Errorf("an empty topic: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := read(ctx, "events.{resource}", true); err != nil {
		t.Errorf("no topic yet: %v", err)
	}
	fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		return r.ResponseKind(), nil, true
	})
	p := &partition{Partition: wire.Partition{Topic: "other", Leader: fake.ListenAddrs()[0]}, end: 1}
	_, err = p.fetch(t.Context(), client)
	if err == nil || !strings.Contains(err.Error(), "does not contain partition 0 of topic other") {
		t.Errorf("an empty response: %v", err)
	}
	p.Leader = ""
	_, err = p.fetch(t.Context(), client)
	if !errors.Is(err, kafkago.LeaderNotAvailable) || !strings.Contains(err.Error(), "partition 0 of topic other") {
		t.Errorf("no leader: %v", err)
	}
}

// TestSince: a partition whose records are all older is at its end.
func TestSince(t *testing.T) {
	_, client := newFake(t, kfake.SeedTopics(1, RegisterTopic))
	n := &Names{Client: client, Template: "k8s"}
	if err := n.Register(t.Context(), sinks.Owner{Cluster: "prod", UID: "one"}, ""); err != nil {
		t.Fatal(err)
	}
	for since, want := range map[time.Time]int64{{}: 0, time.Now().Add(-time.Hour): 0, time.Now().Add(time.Hour): 1} {
		p, err := n.partition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.begin(t.Context(), client, since); err != nil || p.next != want || p.end != 1 {
			t.Errorf("since %v: at %d of %d, %v", since, p.next, p.end, err)
		}
	}
}
