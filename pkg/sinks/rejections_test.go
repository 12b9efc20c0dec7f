package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/deltabridge/deltabridge/test/scale"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const limit = 1000 // of the destination, in bytes

// large is version v of an object that is too large, as an object or as a change.
func large(object string, v int, payload event.Payload) *event.Message {
	m := message(object, v)
	text := fmt.Sprintf(
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q},"data":{"a":%q}}`,
		object,
		strings.Repeat("x", limit),
	)
	if payload == event.PayloadChange {
		text = `{"operation":"updated","object":` + text + `,"old":` + text + `,"patch":[{"op":"test"}],"changedPaths":["/data/a"],"managers":[{"manager":"m"}]}`
	}
	m.Data = []byte(text)
	return m
}

// stores is claims in memory. fail is asked first.
type stores struct {
	kept []string
	fail func() error
}

func (s *stores) keep(what string) error {
	if s.fail != nil {
		if err := s.fail(); err != nil {
			return err
		}
	}
	s.kept = append(s.kept, what)
	return nil
}

func (s *stores) Store(_ context.Context, m *event.Message) (ref, digest string, err error) {
	return "claim:" + m.ID, "sha256:00", s.keep("claim " + m.ID)
}

// letters returns a sink for dead letters, which are kept in the same way.
func (s *stores) letters() *sinks.DeadLetterSink {
	return &sinks.DeadLetterSink{Where: "box", Sink: &scriptSink{send: func(_ context.Context, m *event.Message) error {
		return s.keep("letter " + m.ID + " " + m.Marks.Refused)
	}}}
}

// tooLarge rejects the messages that a broker with a size limit rejects.
func tooLarge(_ context.Context, m *event.Message) error {
	if len(m.Data) > limit {
		return sinks.Permanent(fmt.Errorf("%w: %d bytes", sinks.ErrOversize, len(m.Data)))
	}
	return nil
}

func TestRefusals(t *testing.T) {
	broken := sinks.Permanent(errors.New("full"))
	malformed := func(_ context.Context, m *event.Message) error {
		if m.ID == "a.2" {
			return sinks.Permanent(errors.New("malformed"))
		}
		return nil
	}
	small := func(ctx context.Context, m *event.Message) error { // not even the metadata
		if m.ID == "a.2" {
			return sinks.Permanent(sinks.ErrOversize)
		}
		return nil
	}
	tests := []struct {
		name     string
		mode     sinks.Outcome
		send     func(context.Context, *event.Message) error
		letters  bool
		fail     error
		want     string // what stands in the place of a.2: its id, and what its attributes or its gap say
		outcome  sinks.Outcome
		kept     []string
		metadata bool // what is too large is metadata already
	}{
		{name: "default", want: "a.2.gap oversize", outcome: sinks.OutcomeGap},
		{
			name:    "gap passes dead letters by",
			mode:    sinks.OutcomeGap,
			letters: true,
			want:    "a.2.gap oversize",
			outcome: sinks.OutcomeGap,
		},
		{name: "metadata", mode: sinks.OutcomeMetadata, letters: true, want: "a.2 oversize", outcome: sinks.OutcomeMetadata},
		{
			name:    "metadata is too large",
			mode:    sinks.OutcomeMetadata,
			send:    small,
			want:    "a.2.gap oversize",
			outcome: sinks.OutcomeGap,
		},
		{
			name:    "metadata is too large, dead letters",
			mode:    sinks.OutcomeMetadata,
			send:    small,
			letters: true,
			want:    "a.2.gap oversize box",
			outcome: sinks.OutcomeDeadLetter,
			kept:    []string{"letter a.2 oversize"},
		},
		{
			name:     "nothing to leave out",
			mode:     sinks.OutcomeClaimCheck,
			metadata: true,
			letters:  true,
			want:     "a.2.gap oversize box",
			outcome:  sinks.OutcomeDeadLetter,
			kept:     []string{"letter a.2 oversize"},
		},
		{
			name:    "claim check",
			mode:    sinks.OutcomeClaimCheck,
			letters: true,
			want:    "a.2 oversize claim:a.2 sha256:00",
			outcome: sinks.OutcomeClaimCheck,
			kept:    []string{"claim a.2"},
		},
		{
			name:    "claim check is refused",
			mode:    sinks.OutcomeClaimCheck,
			fail:    broken,
			want:    "a.2.gap oversize",
			outcome: sinks.OutcomeGap,
		},
		{
			name:    "dead letter",
			mode:    sinks.OutcomeDeadLetter,
			letters: true,
			want:    "a.2.gap oversize box",
			outcome: sinks.OutcomeDeadLetter,
			kept:    []string{"letter a.2 oversize"},
		},
		{
			name:    "dead letters are full",
			mode:    sinks.OutcomeDeadLetter,
			letters: true,
			fail:    broken,
			want:    "a.2.gap oversize",
			outcome: sinks.OutcomeLost,
		},
		{
			name:    "malformed",
			mode:    sinks.OutcomeMetadata,
			send:    malformed,
			letters: true,
			want:    "a.2.gap refused box",
			outcome: sinks.OutcomeDeadLetter,
			kept:    []string{"letter a.2 refused"},
		},
		{
			name:    "malformed, no dead letters",
			mode:    sinks.OutcomeClaimCheck,
			send:    malformed,
			want:    "a.2.gap refused",
			outcome: sinks.OutcomeGap,
		},
	}
	for _, test := range tests {
		for _, payload := range []event.Payload{event.PayloadObject, event.PayloadChange} {
			t.Run(test.name+"/"+string(payload), func(t *testing.T) {
				big := large("a", 2, payload)
				if test.metadata {
					big.Data = []byte(`{"metadata":{"name":"` + strings.Repeat("x", limit) + `"}}`)
				}
				if test.send == nil {
					test.send = tooLarge
				}
				sink, store := &scriptSink{send: test.send}, &stores{fail: func() error { return test.fail }}
				q := queueOf(t, message("a", 1), big, message("a", 3), message("b", 1))
				q.Close()
				var outcomes []sinks.Outcome
				seen := &seen{}
				hooks := seen.hooks()
				hooks.OnRejected = func(_ *event.Message, r sinks.Rejection) { outcomes = append(outcomes, r.Outcome) }
				log, text := logged()
				d := &sinks.Drain{
					Parked:     noneParked(t),
					Sink:       sink,
					Queue:      q,
					Hooks:      hooks,
					Logger:     log,
					Rejections: sinks.Rejections{Oversize: test.mode, Payloads: store},
				}
				if test.letters {
					d.Rejections.DeadLetters = store.letters()
				}
				if err := d.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				var order, said []string
				for _, m := range sink.broker {
					if strings.HasPrefix(m.ID, "a.") {
						order = append(order, m.ID)
					}
					switch {
					case m.Marks != nil:
						said = append(
							said,
							strings.TrimSpace(strings.Join([]string{m.ID, m.Marks.Omitted, m.Marks.Ref, m.Marks.Digest}, " ")),
						)
						if m.Marks.Size != int64(len(big.Data)) || m.Type != event.Updated {
							t.Errorf("%v %+v", m.Type, m.Marks)
						}
					case m.GapInfo != nil:
						said = append(said, strings.TrimSpace(strings.Join([]string{m.ID, m.GapInfo.Reason, m.GapInfo.DeadLetter}, " ")))
						if m.GapInfo.Event != "a.2" || m.GapInfo.Subject != "configmaps/default/a" || m.GapInfo.Operation != "updated" {
							t.Errorf("%+v", m.GapInfo)
						}
					}
				}
				id, _, _ := strings.Cut(test.want, " ")
				if diff := cmp.Diff([]string{"a.1", id, "a.3"}, order); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{test.want}, said); diff != "" {
					t.Errorf("in its place (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]sinks.Outcome{test.outcome}, outcomes); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.kept, store.kept); diff != "" {
					t.Errorf("kept (-want +got):\n%s", diff)
				}
				settled := 3
				if id == "a.2" {
					settled = 4
				}
				if len(seen.settled) != settled || seen.retries != 0 || q.Stats().Items != 0 {
					t.Errorf("settled %v, %d retries, %d left", seen.settled, seen.retries, q.Stats().Items)
				}
				if lost := strings.Contains(text.String(), "level=ERROR"); lost != (test.outcome == sinks.OutcomeLost) {
					t.Errorf("log:\n%s", text)
				}
			})
		}
	}
}

// While the payload store is unavailable, no event after the large event is sent. Afterwards, all events are sent in
// order.
func TestClaimStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		sink, store := &scriptSink{send: tooLarge}, &stores{}
		seen := &seen{}
		log, text := logged()
		d := &sinks.Drain{
			Parked:     noneParked(t),
			Sink:       sink,
			Hooks:      seen.hooks(),
			Logger:     log,
			Rejections: sinks.Rejections{Oversize: sinks.OutcomeClaimCheck, Payloads: store},
		}
		store.fail = func() error {
			if tries++; tries < 4 {
				if tries == 2 && !strings.Contains(d.Status(), "claim check: connection refused") {
					t.Errorf("status %q", d.Status())
				}
				return errAway
			}
			return nil
		}
		d.Queue = queueOf(t, message("b", 1), large("a", 1, event.PayloadObject), message("a", 2), message("a", 3))
		d.Queue.Close()
		if err := d.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"b.1", "a.1", "a.2", "a.3"}, sink.ids()); diff != "" {
			t.Errorf("at the broker (-want +got):\n%s", diff)
		}
		if tries != 4 || !strings.Contains(text.String(), "destination available again") {
			t.Errorf("%d tries, log:\n%s", tries, text)
		}
	})
}

// With random failures of the sink and the stores, and with random sizes, each object keeps its order, and nothing is
// missing.
func TestRefusalsRandomFailures(t *testing.T) {
	for seed := range uint64(scale.Of(25, 100)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			away := func() error {
				if r.IntN(4) == 0 {
					return errAway
				}
				return nil
			}
			sink, store := &scriptSink{}, &stores{fail: away}
			sink.send = func(ctx context.Context, m *event.Message) error {
				if err := tooLarge(ctx, m); err != nil {
					return err
				}
				return away()
			}
			want := map[string][]string{}
			q := queueOf(t)
			refused := 0
			for range 100 {
				name := fmt.Sprint("o", r.IntN(6))
				v := len(want[name]) + 1
				m := message(name, v)
				if r.IntN(3) == 0 {
					m = large(name, v, event.PayloadChange)
					refused++
				}
				want[name] = append(want[name], m.ID)
				if err := q.Push(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			q.Close()
			seen := &seen{}
			log, _ := logged()
			mode := []sinks.Outcome{sinks.OutcomeMetadata, sinks.OutcomeClaimCheck}[seed%2]
			d := &sinks.Drain{
				Parked:     noneParked(t),
				Sink:       sink,
				Queue:      q,
				MaxBatch:   1 + r.IntN(32),
				Hooks:      seen.hooks(),
				Logger:     log,
				Rejections: sinks.Rejections{Oversize: mode, Payloads: store},
			}
			if err := d.Run(t.Context()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if diff := cmp.Diff(want, sequences(sink.broker)); diff != "" {
				t.Fatalf("seed %d: at the broker (-want +got):\n%s", seed, diff)
			}
			if len(seen.settled) != 100 || len(seen.refused) != refused {
				t.Errorf("seed %d: %d settled, %d refused of %d", seed, len(seen.settled), len(seen.refused), refused)
			}
		})
	}
}
