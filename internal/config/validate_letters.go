package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// letterConflicts reports dead letters whose stream or topic is not for them, or can't be created.
func (v *validator) letterConflicts(sinks []Sink) {
	for i := range sinks {
		if d := sinks[i].DeadLetter; d == nil {
			continue
		}
		for j := range sinks {
			if v.streamConflict(i, j, sinks) || v.topicConflict(i, j, sinks) {
				break
			}
		}
	}
}

// letterSubject is the subject of a sink's dead letters, with wildcards; empty if it has none, or it is wrong.
func (v *validator) letterSubject(i int, s *Sink) string {
	at := fmt.Sprintf("sinks[%d].deadLetter", i)
	d := s.DeadLetter
	if d == nil || d.Subject == "" || d.Stream == "" || v.broken[at+".subject"] || v.broken[at+".stream"] || !v.hasServer(i, s) || s.NATS.Embedded != nil {
		return ""
	}
	template, err := event.ParseTemplate(d.Subject, event.EscapeSubject)
	if err != nil {
		return ""
	}
	return template.Wildcard()
}

// streamConflict reports whether the stream of sink i's dead letters is at odds with a stream of sink j, which may be i.
func (v *validator) streamConflict(i, j int, sinks []Sink) bool {
	a, b := &sinks[i], &sinks[j]
	subject := v.letterSubject(i, a)
	if subject == "" || !v.hasServer(j, b) || !slices.ContainsFunc(hostsOf(a.NATS), func(host string) bool { return slices.Contains(hostsOf(b.NATS), host) }) {
		return false
	}
	at, other := fmt.Sprintf("sinks[%d].deadLetter", i), fmt.Sprintf("sinks[%d]", j)
	name, create := a.DeadLetter.Stream, a.NATS.Stream.Create && b.NATS.Stream.Create
	if name == b.NATS.streamName() {
		if i != j { // otherwise it was reported already
			v.report(at+".stream", fmt.Sprintf("%q is the stream of %s: its readers would take dead letters for its events", shorten(name), other), "use a stream of its own")
		}
		return true
	}
	if taken := overlapping(subject, v.subjectsOf(b.NATS)); create && taken != "" {
		v.letterOverlap(at, subject, taken, other)
		return true
	}
	theirs := v.letterSubject(j, b)
	if j >= i || theirs == "" {
		return false
	}
	same := name == b.DeadLetter.Stream
	switch {
	case same && (a.NATS.Stream.Create && !covers(subject, theirs) || b.NATS.Stream.Create && !covers(theirs, subject)):
		v.report(at+".stream", fmt.Sprintf("%q is that of the dead letters of %s too, and is created for the subject of one of them: %q does not take %q, or the other way round",
			shorten(name), other, shorten(theirs), shorten(subject)), "use the same subject, or two streams")
	case !same && create && overlap(subject, theirs):
		v.letterOverlap(at, subject, theirs, other)
	default:
		return false
	}
	return true
}

func (v *validator) letterOverlap(at, subject, taken, other string) {
	v.report(at+".subject", fmt.Sprintf("%q overlaps with %q, a subject of a stream of %s: a server takes a subject into one stream only", shorten(subject), shorten(taken), other),
		"begin it with a word of its own, as in dead.{cluster}.{resource}")
}

// overlapping is the first of the patterns that a subject can match which matches subject as well; empty if none does.
func overlapping(subject string, patterns []string) string {
	if n := slices.IndexFunc(patterns, func(p string) bool { return overlap(subject, p) }); n >= 0 {
		return patterns[n]
	}
	return ""
}

// topicConflict reports whether the topic of sink i's dead letters is that of the events of another sink, j.
func (v *validator) topicConflict(i, j int, sinks []Sink) bool {
	a, b := &sinks[i], &sinks[j]
	if i == j || a.Kafka == nil || b.Kafka == nil || a.DeadLetter.Topic == "" || a.DeadLetter.Topic != b.Kafka.Topic {
		return false
	}
	brokers := brokersOf(b.Kafka)
	if !slices.ContainsFunc(brokersOf(a.Kafka), func(broker string) bool { return slices.Contains(brokers, broker) }) {
		return false
	}
	v.report(fmt.Sprintf("sinks[%d].deadLetter.topic", i),
		fmt.Sprintf("%s is the topic of sinks[%d]: its readers would take dead letters for its events", strconv.Quote(shorten(a.DeadLetter.Topic)), j), "choose another")
	return true
}

// brokersOf is the brokers as host:port, in one spelling.
func brokersOf(k *Kafka) []string {
	var brokers []string
	for _, broker := range k.Brokers {
		host, port, err := net.SplitHostPort(broker)
		if err == nil {
			brokers = append(brokers, net.JoinHostPort(canonicalHost(host), port))
		}
	}
	return brokers
}

// canonicalHost is a host in one spelling.
func canonicalHost(host string) string {
	switch host {
	case "", "0.0.0.0", "::", "::1", "localhost":
		return "127.0.0.1"
	}
	return strings.ToLower(host)
}
