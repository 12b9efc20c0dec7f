package nats

import (
	"errors"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsack"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

// Part implements [sinks.Sink]. It returns the subject with a wildcard in place of the object's name, so there are
// fewer parts than objects. If all objects have the same subject, there are no such parts. Another part is the stream
// of control events, if they have one.
func (s *Sink) Part(m *event.Message) string {
	if s.isApart(m) {
		return s.controlPart()
	}
	if s.subject.Wildcard() == s.subject.String() {
		return ""
	}
	const wildcard = "*"
	object := &event.Message{Type: event.Updated, Cluster: m.Cluster, Resource: m.Resource, Identity: m.Identity}
	object.Identity.Name, object.Identity.UID, object.Resource.Version = wildcard, wildcard, wildcard
	text := s.subject.Expand(object)
	return strings.NewReplacer("%2A", wildcard, "=2A", wildcard).Replace(text)
}

// unavailable marks err as a failure of the part that takes m. If the destination has no parts, it returns err
// unchanged, as a failure of the whole destination.
func (s *Sink) unavailable(m *event.Message, err error) error {
	part := s.Part(m)
	if part == "" {
		return err
	}
	return sinks.Unavailable(part, sinks.Rejected(err))
}

// partError marks the error of an acknowledgement as a failure of a part if the error concerns only the subject of the
// message: the subject is full, or the stream did not have it at the last check.
func (s *Sink) partError(m *event.Message, a *natsack.Ack) {
	switch {
	case a.Err == nil || sinks.IsPermanent(a.Err) || sinks.IsMaybeWritten(a.Err):
	case errors.Is(a.Err, natsack.ErrFullSubject),
		a.OtherSubject && !natscheck.Covers(s.info.Config.Subjects, s.subject.Expand(m)):
		a.Err = s.unavailable(m, a.Err)
	}
}

// forbid settles the messages with a subject that the server denies. The server does not answer such messages.
func (s *Sink) forbid(subject string) {
	if subject == s.lookUpSubject() {
		err := errors.New(`Permissions Violation for Publish to "` + subject + `"`)
		s.stopLookingUp(s.client.Denied("not looked up", err, s.stream.Wildcard))
		return
	}
	f := &s.flight
	for i, m := range f.batch {
		if f.status[i] == flying && s.route+s.subject.Expand(m) == subject {
			err := errors.New(`Permissions Violation for Publish to "` + subject + `"`)
			f.settle(int32(i), s.unavailable(m, s.client.Denied("not published", err, s.stream.Wildcard)))
		}
	}
}
