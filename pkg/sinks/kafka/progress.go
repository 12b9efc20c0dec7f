package kafka

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// locateTimeout is the time limit for finding out the positions of progress events.
const locateTimeout = time.Second

// errNoPosition means that a progress event for the topic of control events cannot have its position.
var errNoPosition = errors.New("the end of a partition is not known")

// sendProgress writes each progress event to all partitions of the topic of its resource or, if control events have a
// topic of their own, once to that topic, with its position among the objects. It begins to fence partitions that are
// not fenced yet, but does not wait for them.
func (s *Sink) sendProgress(ctx context.Context, batch []*event.Message, results []error) {
	if err := s.ensureProducer(ctx); err != nil {
		results[0] = err
		return
	}
	s.route(ctx, batch)
	defer func() { clear(s.routes) }()
	copies, of := s.copies(ctx, batch, results)
	waiting, cancel := context.WithCancel(ctx)
	cancel()
	s.prepare(waiting)
	outcome := make([]error, len(copies))
	for k := range outcome {
		outcome[k] = sinks.ErrNotAttempted
	}
	s.sendRound(ctx, copies, outcome, 0, len(copies))
	for k, i := range of {
		results[i] = cmp.Or(results[i], outcome[k])
	}
}

// copies returns what is written for a batch of progress events, and sets s.routes to the partitions. of contains, for
// each copy, its index in batch.
func (s *Sink) copies(
	ctx context.Context, batch []*event.Message, results []error,
) (copies []*event.Message, of []int) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	var routes []*partition
	for i, m := range batch {
		to := []*partition{s.routes[i]}
		switch t := s.routes[i].topic; {
		case t.control:
			position, all := s.position(ctx, m)
			if !all {
				results[i] = errNoPosition
				continue
			}
			m = event.Apart(m, position)
		case s.routes[i] != &t.unroutable:
			to = t.partitions
		}
		for _, p := range to {
			copies, of, routes = append(copies, m), append(of, i), append(routes, p)
		}
	}
	s.routes = routes
	return copies, of
}
