package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
)

// errNaming means that the schema registry has not answered yet.
var errNaming = errors.New("waiting for the schema registry")

// naming is a request for the id of the schema of a topic. The fields id and err may be read when done is closed.
type naming struct {
	began time.Time
	done  chan struct{}
	id    registry.ID
	err   error
}

// pingRegistry returns nil if the schema registry has answered once. Later, only new topics require it.
func (s *Sink) pingRegistry(ctx context.Context) error {
	if s.registry == nil || s.pinged {
		return nil
	}
	err := s.registry.Ping(ctx)
	s.pinged = err == nil
	return err
}

// nameSchemas sets the id of the schema of each topic, and registers the schema if necessary. It sets unnamed of each
// topic. An id is valid for the life of the sink, so a batch in doubt can be sent again unchanged. Requests run in the
// background, so a topic whose schema the registry does not accept, or a registry that hangs, delays other topics only
// for a moment.
func (s *Sink) nameSchemas(ctx context.Context, topics []*topic) {
	if s.registry == nil {
		return
	}
	for _, t := range topics {
		if t.schema == "" && t.naming == nil && t.err == nil {
			t.naming = s.requestSchema(t.name)
		}
	}
	for _, t := range topics {
		switch {
		case t.naming == nil:
		case t.naming.wait(ctx):
			if t.unnamed = nil; t.naming.err != nil {
				t.unnamed = s.unavailable(t, t.naming.err)
			} else {
				t.schema = t.naming.id.Encode()
			}
			t.naming = nil
		case t.unnamed == nil:
			t.unnamed = s.unavailable(t, errNaming)
		}
	}
}

// wait waits for the response, but only for a short time after the request has begun. It reports whether there is one.
func (n *naming) wait(ctx context.Context) (answered bool) {
	select {
	case <-n.done:
	case <-time.After(time.Until(n.began.Add(fenceWait))):
	case <-ctx.Done():
	}
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// requestSchema begins a request for the id of the schema of a topic.
func (s *Sink) requestSchema(topic string) *naming {
	n := &naming{began: time.Now(), done: make(chan struct{})}
	s.fences.wg.Go(func() {
		defer close(n.done)
		n.id, n.err = s.registry.Register(s.fences.ctx, topic)
	})
	return n
}
