package natscheck

import (
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// The effects if the sink cannot read the stream after a crash.
const (
	OnlyWindow  = "repeated events are only recognized within the duplicate window"
	Replicating = "events that the servers are still replicating can be stored twice"
	LastWins    = "an older state can replace a newer one"
)

// readBackWarnings returns a warning for everything that keeps the sink from reading the stream back after a crash.
// consumers is the number of consumers of the stream. may contains the user's permissions; it is nil if they are not
// known.
func (s *Stream) readBackWarnings(
	c *jetstream.StreamConfig, consumers int, may *server.Permissions,
) (found []diagnose.Finding) {
	retention := strings.ToLower(c.Retention.String())
	switch {
	case s.Letters:
		return nil
	case c.Retention != jetstream.LimitsPolicy && s.isLatest():
		s.warn(&found, true, "use retention: limits",
			"its retention is %v: after a crash, states that consumers have removed are sent again", retention)
		return found
	case c.Retention != jetstream.LimitsPolicy:
		s.warn(&found, true, "use retention: limits, or a duplicate_window that is longer than the bridge is ever down",
			"its retention is %v: %s (duplicate_window %v)", retention, OnlyWindow, c.Duplicates)
		return found
	}
	api, name := s.Access.API(), c.Name
	denied := func(effect string, subjects ...string) {
		subjects = slices.DeleteFunc(subjects, func(subject string) bool {
			all, _ := allows(may.Publish, subject)
			return all
		})
		list := strings.Join(subjects, ", ")
		s.warn(&found, len(subjects) > 0, "on the server, allow "+s.Access.Auth.Who()+" to publish to "+list,
			"the user may not publish to %s: after a crash, %s", list, effect)
	}
	switch {
	case s.isLatest() && may != nil:
		denied(LastWins, api+".STREAM.MSG.GET."+name)
	case s.isLatest():
	case c.MaxConsumers > 0 && consumers >= c.MaxConsumers:
		s.warn(&found, true, "raise max_consumers",
			"it has as many consumers as it allows (max_consumers %d): after a crash, %s", c.MaxConsumers, OnlyWindow)
	case may != nil:
		denied(OnlyWindow, api+".CONSUMER.CREATE."+name+".*", api+".CONSUMER.INFO."+name+".*",
			api+".CONSUMER.MSG.NEXT."+name+".*")
		denied(Replicating, s.Access.Route(s.Wildcard)+s.EndSubject(c.Subjects))
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
