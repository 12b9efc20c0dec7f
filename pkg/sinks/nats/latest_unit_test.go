package nats

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// What is known of a stream has a bound, and what does not fit is looked up again.
func TestLatestIsBounded(t *testing.T) {
	l := latest{writer: "i/s"}
	l.reset(10)
	found := func(v int) sinks.FoundRecord {
		m := sinktest.Message("a", v, 0)
		return sinks.FoundRecord{
			Mark: sinks.Mark("i/s", m), ID: m.ID, UID: string(m.Identity.UID), Version: m.Identity.ResourceVersion,
		}
	}
	for i := range uint64(maxRecords + 100) {
		l.note(fmt.Sprint(i), 10+i, found(5))
	}
	for i := range uint64(maxSequences + 100) {
		l.replaceable(i, i)
	}
	if len(l.records) != maxRecords || len(l.sequences) != maxSequences {
		t.Errorf("%d records, %d sequences", len(l.records), len(l.sequences))
	}
	leave := sinktest.Message("a", 6, 0)
	leave.Type, leave.LeftFilter = event.Deleted, true
	leave.IfFound = true
	l.reset(10)
	expect := func(subject string, m *event.Message, sequence uint64, stored bool) {
		t.Helper()
		got, err := l.expect(maphash.String(l.seed, subject), subject, m)
		if got != sequence || errors.Is(err, sinks.ErrStored) != stored {
			t.Errorf("%s: sequence %d, %v", subject, got, err)
		}
	}
	l.note("before the position", 9, found(5))
	l.note("of others", 11, sinks.FoundRecord{Mark: "i/s2", ID: "x", UID: "uid-a", Version: "9000"})
	l.note("newer", 12, found(5))
	older, newer := sinktest.Message("a", 4, 0), sinktest.Message("a", 6, 0)
	expect("before the position", older, 9, false)
	expect("of others", older, 11, false)
	expect("unknown", older, 0, false)
	expect("unknown", leave, math.MaxInt64, false)
	expect("of others", leave, 0, true)
	expect("newer", leave, 12, false)
	expect("newer", older, 0, true)
	expect("newer", newer, 12, false)
	// Two subjects with the same hash.
	if got, err := l.expect(maphash.String(l.seed, "newer"), "other", older); got != 12 || err != nil {
		t.Errorf("another subject with the same hash: %d, %v", got, err)
	}
	l.replaceable(maphash.String(l.seed, "newer"), 13)
	expect("newer", older, 13, false)
}

// Headers by which a later process recognizes a message.
func TestMarkedHeaders(t *testing.T) {
	m := sinktest.Message("a", 1, 10)
	m.Structured, m.FinalStateUnknown, m.History, m.Epoch = true, true, "h", "e"
	again := *m
	again.Delivery = "p-1"
	for _, c := range []struct {
		m      *event.Message
		latest bool
		want   natsgo.Header
	}{
		{m, false, natsgo.Header{"deltabridge": {"i/s h e"}, "Nats-Msg-Id": {"test/uid-a.1001.e"}}},
		{&again, false, natsgo.Header{"deltabridge": {"i/s h e p-1"}, "Nats-Msg-Id": {"test/uid-a.1001.p-1"}}},
		{&again, true, natsgo.Header{"deltabridge": {"i/s h e p-1"}, "Nats-Expected-Last-Subject-Sequence": {"7"}}},
	} {
		h := newHeaders(&Config{Stream: StreamConfig{Name: "K8S", LastPerSubject: c.latest}})
		h.writer = "i/s"
		c.want["Nats-Expected-Stream"] = []string{"K8S"}
		c.want["content-type"] = []string{c.m.ContentType()}
		c.want["ce-id"], c.want["ce-uid"] = []string{"uid-a.1001"}, []string{"uid-a"}
		c.want["ce-subject"] = []string{"things.apps.example.com/default/a"}
		c.want["ce-resourceversion"], c.want["ce-finalstateunknown"] = []string{"1001"}, []string{"true"}
		if diff := cmp.Diff(c.want, h.set(c.m, 7)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		h.set(sinktest.Message("b", 1, 10), 7)
		if diff := cmp.Diff(c.want, h.set(c.m, 7)); diff != "" {
			t.Errorf("after another message (-want +got):\n%s", diff)
		}
	}
}
