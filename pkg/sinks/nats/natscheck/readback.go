package natscheck

import (
	"context"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// The effects if the sink cannot read the stream after a crash.
const (
	OnlyWindow  = "repeated events are only recognized within the duplicate window"
	Replicating = "events that the servers are still replicating can be stored twice"
	LastWins    = "an older state can replace a newer one"
)

// readBackWarnings returns a warning for everything that keeps the sink from reading the stream back after a crash.
func (s *Stream) readBackWarnings(
	ctx context.Context, t *natsconn.Attempt, info *jetstream.StreamInfo,
) (found []diagnose.Finding) {
	c, retention := &info.Config, strings.ToLower(info.Config.Retention.String())
	requests, effect := []string{
		"CONSUMER.CREATE." + c.Name + ".*", "CONSUMER.INFO." + c.Name + ".*", "CONSUMER.MSG.NEXT." + c.Name + ".*",
	}, OnlyWindow
	if s.isLatest() {
		requests, effect = []string{"STREAM.MSG.GET." + c.Name}, LastWins
	}
	switch {
	case s.Letters:
	case c.Retention != jetstream.LimitsPolicy && s.isLatest():
		s.warn(&found, true, "use retention: limits",
			"its retention is %v: after a crash, states that consumers have removed are sent again", retention)
	case c.Retention != jetstream.LimitsPolicy:
		s.warn(&found, true, "use retention: limits, or a duplicate_window that is longer than the bridge is ever down",
			"its retention is %v: %s (duplicate_window %v)", retention, OnlyWindow, c.Duplicates)
	case !s.isLatest() && c.MaxConsumers > 0 && info.State.Consumers >= c.MaxConsumers:
		s.warn(&found, true, "raise max_consumers",
			"it has as many consumers as it allows (max_consumers %d): after a crash, %s", c.MaxConsumers, OnlyWindow)
	default:
		for _, err := range s.Try(ctx, t, requests...) {
			s.warn(&found, true, err.Remedy, "%v: after a crash, %s", err.Err, effect)
		}
	}
	return found
}

// EndSubject returns a subject of the stream that no event has, unless all events have the same subject. subjects
// contains the subjects of the stream.
func (s *Stream) EndSubject(subjects []string) string {
	text := s.Wildcard
	for _, subject := range subjects {
		if server.SubjectsCollide(subject, s.Wildcard) {
			text = intersection(subject, s.Wildcard)
			break
		}
	}
	return strings.NewReplacer("*", "_", ">", "_").Replace(text)
}

// intersection returns a pattern for the subjects that both a and b match. At least one subject must match both.
func intersection(a, b string) string {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	var tokens []string
	for i := range min(len(as), len(bs)) {
		switch {
		case as[i] == ">":
			return strings.Join(append(tokens, bs[i:]...), ".")
		case bs[i] == ">":
			return strings.Join(append(tokens, as[i:]...), ".")
		case as[i] == "*":
			tokens = append(tokens, bs[i])
		default:
			tokens = append(tokens, as[i])
		}
	}
	return strings.Join(tokens, ".")
}
