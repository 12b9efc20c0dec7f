package nats

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "plain", "Euro € 😀", `a "b" 100%`, "\x00\r\n\xff"} {
		f.Add(s)
	}
	encoder := newEncoder()
	f.Fuzz(func(t *testing.T, s string) {
		encoded := encoder.Replace(s)
		for _, c := range []byte(encoded) {
			if c <= ' ' || c >= 0x7f || c == '"' {
				t.Fatalf("%q was encoded as %q", s, encoded)
			}
		}
		if decoded, err := url.PathUnescape(encoded); err != nil || decoded != s {
			t.Fatalf("%q was encoded as %q, which says %q (%v)", s, encoded, decoded, err)
		}
	})
}

func TestEncodeExampleOfTheSpecification(t *testing.T) {
	if got, want := newEncoder().Replace("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Headers of one message don't leak into the next, whatever attributes they have.
func TestHeadersAreThoseOfTheMessage(t *testing.T) {
	messages := []*event.Message{
		sinktest.Message("a", 1, 10), sinktest.Gap(), sinktest.Message("b", 1, 10), sinktest.Message("c", 1, 10),
		sinktest.Message("d", 1, 10), sinktest.Gap(), sinktest.Message("e", 1, 10),
	}
	messages[2].Identity.Manager, messages[2].InitialList = "", true
	messages[3].Structured = true
	h := newHeaders(&Config{Stream: StreamConfig{Name: "K8S"}})
	for i, m := range messages {
		want := natsgo.Header{"Nats-Msg-Id": {"test/" + m.ID}, "Nats-Expected-Stream": {"K8S"}}
		if m.Structured {
			want["content-type"] = []string{"application/cloudevents+json; charset=UTF-8"}
		} else {
			for name, value := range m.Headers {
				want["ce-"+name] = []string{h.encoder.Replace(value)}
			}
		}
		if diff := cmp.Diff(want, h.set(m, 0)); diff != "" {
			t.Errorf("message %d (-want +got):\n%s", i, diff)
		}
	}
}

// The order in which a batch goes out, for answers in an order of the test's choice.
func TestFlight(t *testing.T) {
	m := func(name string, v int) *event.Message { return sinktest.Message(name, v, 0) }
	batch := []*event.Message{m("a", 1), m("a", 2), m("b", 1), m("a", 3), m("b", 2), m("c", 1), m("d", 1), m("d", 2)}
	results := make([]error, len(batch))
	var f flight
	step := func(want string) {
		t.Helper()
		var names []string
		for ; f.readyAt < len(f.ready); f.readyAt++ {
			i := f.ready[f.readyAt]
			f.status[i] = flying
			f.flying++
			names = append(names, fmt.Sprintf("%s%d", batch[i].Identity.Name, batch[i].Time.Nanosecond()))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	}
	f.begin(batch, results)
	step("a1 b1 c1 d1")
	f.settle(2, nil)
	f.settle(0, nil)
	f.settle(6, sinks.Permanent(errors.New("no"))) // what takes its place comes first
	step("b2 a2")
	if !errors.Is(results[7], sinks.ErrNotAttempted) {
		t.Errorf("after d1 was refused: %v", results[7])
	}
	f.settle(1, errors.New("later"))
	if f.open != 2 || f.flying != 2 || !errors.Is(results[3], sinks.ErrNotAttempted) {
		t.Errorf("after a2 failed: %d open, %d flying, results %v", f.open, f.flying, results)
	}
	f.giveUp(errors.New("broken"))
	if f.open != 0 || !sinks.IsMaybeWritten(results[4]) || !sinks.IsMaybeWritten(results[5]) {
		t.Errorf("after the end: %d open, results %v", f.open, results)
	}
	base := f.base
	f.end()
	if len(f.last) != 0 {
		t.Errorf("keys are left: %v", f.last)
	}
	f.begin(batch[:1], results[:1])
	if want := base + uint64(len(batch)); f.base != want {
		t.Errorf("reply tokens begin at %d, want %d: none may be used twice", f.base, want)
	}
	f.giveUp(errors.New("broken"))
	if err := results[0]; sinks.IsMaybeWritten(err) || !errors.Is(err, errNotSent) {
		t.Errorf("never published: %v", err)
	}
}

// An event of one epoch is no repetition of one of another epoch.
func TestTheIDHasTheEpoch(t *testing.T) {
	h := newHeaders(&Config{Stream: StreamConfig{Name: "K8S"}})
	m := sinktest.Message("a", 1, 10)
	plain := h.set(m, 0).Get("Nats-Msg-Id")
	m.Epoch = "e1"
	if got := h.set(m, 0).Get("Nats-Msg-Id"); got != plain+".e1" {
		t.Errorf("%q, without an epoch %q", got, plain)
	}
}
