package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

// appliedInterval is the time between two requests that find out whether the stream has stored what it has received.
const appliedInterval = 20 * time.Millisecond

// end returns the last sequence of the stream after it has stored everything that its leader had received when end was
// called. Messages of a process that was killed can be in the leader for some time before they are stored: until they
// are replicated, the state of the stream does not contain them.
func (s *Sink) end(ctx context.Context) (uint64, error) {
	if !s.headers.latest {
		if err := s.tryToRead(ctx, natscheck.Replicating, s.awaitReceived, s.endSubject()); err != nil {
			return 0, err
		}
	}
	return s.info.State.LastSeq, nil
}

// awaitReceived waits until the stream has stored what its leader has received, and updates the stream's state.
func (s *Sink) awaitReceived(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	tick := time.NewTicker(appliedInterval)
	defer tick.Stop()
	for received := uint64(math.MaxUint64); ; {
		last, err := repeat(ctx, s.lastReceived)
		if err != nil {
			return err
		}
		// The number is too high if the stream refuses or loses messages before it stores them. A number that is
		// requested later is not too high, but it also counts later messages.
		received = min(received, last)
		stream, err := s.lookUp(ctx)
		if err != nil {
			return err
		}
		if s.info.State = stream.CachedInfo().State; s.info.State.LastSeq >= received {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("sequence %d is not stored yet, only %d: %w", received, s.info.State.LastSeq, ctx.Err())
		}
	}
}

// lastReceived returns the sequence that the stream will have when it has stored all messages that its leader has
// received. For that, it publishes a message that the stream must refuse, because it expects an impossible last
// sequence: servers from 2.12 answer with the last sequence that the leader has proposed to the replicas
// (checkMsgHeadersPreClusteredProposal in nats-server), and older servers, or those with a single replica, when all
// earlier messages are stored (processJetStreamMsg).
func (s *Sink) lastReceived(ctx context.Context) (uint64, error) {
	answer, err := s.client.Conn().RequestMsgWithContext(ctx, &natsgo.Msg{
		Subject: s.endSubject(),
		Header: natsgo.Header{
			jetstream.ExpectedStreamHeader:  {s.cfg.Stream.Name},
			jetstream.ExpectedLastSeqHeader: {strconv.FormatInt(math.MaxInt64, 10)}, // the server parses an int64
		},
	})
	if err != nil {
		return 0, err
	}
	a := s.answers.Read(answer)
	switch {
	case a.Refused && a.Numbered:
		return a.Sequence, nil
	case a.Err == nil:
		return 0, errors.New("the stream did not refuse a message with an impossible sequence")
	}
	return 0, a.Err
}

func (s *Sink) endSubject() string { return s.route + s.stream.EndSubject(s.info.Config.Subjects) }
