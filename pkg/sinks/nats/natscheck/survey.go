package natscheck

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Survey returns the number of servers, and whether the stream exists.
func (s *Stream) Survey(ctx context.Context) (found diagnose.Survey, err error) {
	t, _, err := s.Access.First(ctx)
	if err != nil {
		return found, err
	}
	defer t.Conn.Close()
	if found.Servers, err = s.Access.CountServers(); err != nil {
		return found, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	info, err := s.Find(ctx, t)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = s.CreationError(ctx, t)
	case err != nil:
		return found, s.Error(err)
	default:
		found.Exists, found.Detail = true, describe(&info.Config)
		err = s.Unfit(&info.Config)
	}
	if err != nil {
		found.Detail = err.Error()
	}
	return found, nil
}
