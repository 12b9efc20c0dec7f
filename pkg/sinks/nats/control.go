package nats

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// newControl returns the sink for the stream of control events, or nil if they go to the stream of the objects.
func newControl(cfg *Config) *Sink {
	if cfg.ControlSink == nil {
		return nil
	}
	c := *cfg.ControlSink
	c.Prober, c.Logger = cfg.Prober, cfg.Logger
	return New(c)
}

// controlPart is the part of the destination that takes control events if they have a stream of their own.
func (s *Sink) controlPart() string { return "stream " + s.control.cfg.Stream.Name }

// isApart reports whether m goes to the stream of control events.
func (s *Sink) isApart(m *event.Message) bool { return s.control != nil && m.Type.IsControl() }

// sendApart is send for a batch that contains events for the stream of control events. These are sent last: the end of
// the stream of the objects is then the position of a gap.
func (s *Sink) sendApart(ctx context.Context, batch []*event.Message, results []error) {
	var messages [2][]*event.Message // the objects, and the control events
	var at [2][]int
	for i, m := range batch {
		results[i] = sinks.ErrNotAttempted
		n := 0
		if s.isApart(m) {
			n = 1
		}
		messages[n], at[n] = append(messages[n], m), append(at[n], i)
	}
	note := func(n int, outcome []error) {
		for k, i := range at[n] {
			results[i] = outcome[k]
		}
	}
	if len(messages[0]) > 0 {
		outcome := make([]error, len(messages[0]))
		s.send(ctx, messages[0], outcome)
		note(0, outcome)
	} else if err := s.prepare(ctx); err != nil { // the servers are unavailable, not only the stream of control events
		results[0] = err
		return
	}
	for k, m := range messages[1] {
		if m.GapInfo != nil {
			messages[1][k] = event.Apart(m, s.position())
		}
	}
	outcome := make([]error, len(messages[1]))
	s.control.Send(ctx, messages[1], outcome)
	for k, err := range outcome {
		switch {
		case err == nil, sinks.IsPermanent(err), errors.Is(err, sinks.ErrStored), errors.Is(err, sinks.ErrNotAttempted):
		default:
			outcome[k] = sinks.Unavailable(s.controlPart(), err)
		}
	}
	note(1, outcome)
}

// position returns the end of the stream of the objects: all earlier events of the sink are before it. It returns nil
// if it is not known.
func (s *Sink) position() *event.Position {
	last := max(s.progress.acked, s.progress.read)
	if last == 0 && s.progress.part == "" {
		return nil
	}
	return &event.Position{Stream: s.cfg.Stream.Name, Sequence: last + 1}
}

// bothPositions returns the positions in both streams. See [sinks.Resumer].
func (s *Sink) bothPositions(parked []string) sinks.Positions {
	objects := slices.DeleteFunc(slices.Clone(parked), func(part string) bool { return part == s.controlPart() })
	positions := s.positions(objects)
	if positions == nil {
		positions = make(sinks.Positions)
	}
	if len(objects) == len(parked) {
		maps.Copy(positions, s.control.positions(nil))
	}
	return positions
}

// readBoth reads both streams at once. See [diagnose.Reader].
func (s *Sink) readBoth(ctx context.Context, o diagnose.ReadOptions, handle func(*diagnose.Record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var failed error
	one := func(r *diagnose.Record) error {
		mu.Lock()
		defer mu.Unlock()
		return cmp.Or(failed, handle(r))
	}
	var wg sync.WaitGroup
	for _, sink := range []*Sink{s, s.control} {
		wg.Go(func() {
			if err := sink.stream.Read(ctx, &sink.client, o, one); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = cmp.Or(failed, err)
				cancel()
			}
		})
	}
	wg.Wait()
	return failed
}

// checkControl checks the stream of control events. The servers are checked already.
func (s *Sink) checkControl(ctx context.Context) []diagnose.Finding {
	if s.control == nil {
		return nil
	}
	return slices.DeleteFunc(s.control.Check(ctx), func(f diagnose.Finding) bool {
		return f.Step != sinks.StepStream && f.Err == nil && !f.Warn
	})
}
