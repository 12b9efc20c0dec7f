package natscheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

const (
	// absent is the name of a consumer that does not exist.
	absent = "deltabridge-doctor"
	// attemptTimeout is the timeout of a request that need not be answered. The server denies a request at once.
	attemptTimeout = 2 * time.Second
)

// tryToPublish publishes a message that the stream must refuse, because it expects an impossible last sequence.
func (s *Stream) tryToPublish(ctx context.Context, t *natsconn.Attempt, subjects []string) diagnose.Finding {
	subject := s.Access.Route(s.Wildcard) + s.EndSubject(subjects)
	f := diagnose.Finding{Step: sinks.StepAuthorize, Target: "subject " + subject, Detail: "may publish"}
	err := t.AskOptional(ctx, func(ctx context.Context) error {
		_, err := t.JetStream.Publish(ctx, subject, nil, jetstream.WithExpectStream(s.Config.Name),
			jetstream.WithExpectLastSequence(math.MaxInt64)) // the server parses an int64
		return err
	})
	switch {
	case IsWrongSequence(err):
		return f
	case errors.Is(err, natsgo.ErrPermissionViolation):
		err = s.Access.Denied("an empty message, which the stream would refuse, is not permitted", err, s.Wildcard)
	case err == nil:
		err = errors.New("the stream did not refuse a message with an impossible sequence")
	default:
		err = fmt.Errorf("a message is not answered as expected: %w", err)
	}
	return diagnose.Failed(f.Step, f.Target, err)
}

// IsWrongSequence reports whether a stream has refused a message because it has another last sequence.
func IsWrongSequence(err error) bool {
	api, ok := errors.AsType[jetstream.JetStreamError](err)
	if !ok || api.APIError() == nil {
		return false
	}
	code := server.ErrorIdentifier(api.APIError().ErrorCode)
	return code == server.JSStreamWrongLastSequenceErrF || code == server.JSStreamWrongLastSequenceConstantErr
}

// tryToCreate reports that the stream does not exist yet, or that the user may not create it.
func (s *Stream) tryToCreate(ctx context.Context, t *natsconn.Attempt) diagnose.Finding {
	if denied := s.Try(ctx, t, "STREAM.CREATE."+s.Config.Name); len(denied) > 0 {
		return s.failed(denied[0])
	}
	return s.finding("it does not exist; the bridge creates it at startup")
}

// Try sends requests to the JetStream API, and returns the missing permissions. A request is a subject without the
// prefix of the API, with * in place of a consumer. The requests are empty: the server refuses them, or does not know
// the consumer. Do not try to purge: an empty request removes all messages.
func (s *Stream) Try(ctx context.Context, t *natsconn.Attempt, requests ...string) (denied []*sinks.ConnectError) {
	for _, request := range requests {
		subject := s.Access.API() + "." + request
		err := t.AskOptional(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
			defer cancel()
			_, err := t.Conn.RequestWithContext(ctx, strings.Replace(subject, "*", absent, 1), []byte("{}"))
			return err
		})
		if errors.Is(err, natsgo.ErrPermissionViolation) {
			err = fmt.Errorf("%w: Permissions Violation for Publish to %q", natsgo.ErrPermissionViolation, subject)
			denied = append(denied, s.Access.Denied("the user lacks a permission", err, s.Wildcard))
		}
	}
	return denied
}
