package config

import (
	"strconv"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// refusals checks what becomes of events that the destination refuses for good.
func (v *validator) refusals(path string, s *Sink) {
	switch {
	case v.broken[path+".oversize"]:
	case s.Oversize == OversizeClaimCheck && s.ClaimCheck == nil && !v.confused[path] && !v.broken[path+".claimCheck"]:
		v.report(path+".oversize", "is claimCheck, and there is no claimCheck", "add claimCheck: {bucket: k8s-claims, create: true}")
	case s.Oversize == OversizeDeadLetter && s.DeadLetter == nil && !v.confused[path] && !v.broken[path+".deadLetter"]:
		v.report(path+".oversize", "is deadLetter, and there is no deadLetter", "add deadLetter: {file: {}}")
	}
	if s.Stdout != nil && (v.has(path+".oversize") || v.has(path+".claimCheck") || v.has(path+".deadLetter")) {
		for _, name := range []string{"oversize", "claimCheck", "deadLetter"} {
			if v.has(path + "." + name) {
				v.report(path+"."+name, "has no meaning for stdout, which takes everything", "remove it")
			}
		}
		return
	}
	if s.ClaimCheck != nil && !v.broken[path+".claimCheck"] {
		v.claimCheck(path, s)
	}
	if s.DeadLetter != nil && !v.broken[path+".deadLetter"] {
		v.deadLetter(path, s)
	}
}

func (v *validator) claimCheck(path string, s *Sink) {
	c, at := s.ClaimCheck, path+".claimCheck"
	if !v.broken[path+".oversize"] && s.Oversize != OversizeClaimCheck {
		v.report(at, "is given, and oversize is not claimCheck", "write oversize: claimCheck, or remove it")
	}
	if v.has(at+".bucket") && !validBucket(c.Bucket) {
		v.report(at+".bucket", strconv.Quote(shorten(c.Bucket))+" can't be the name of an object store", "use letters, digits, - and _")
	}
	n := c.NATS
	if n == nil {
		if s.Kafka != nil && !v.confused[at] && !v.broken[at+".nats"] {
			v.report(at, "has no NATS server, and the sink is one of Kafka", "add nats: {url: nats://127.0.0.1:4222}")
		}
		return
	}
	if v.broken[at+".nats"] {
		return
	}
	servers := NATS{URL: n.URL}
	for _, server := range servers.Servers() {
		v.serverURL(at+".nats.url", server)
	}
	if auth := v.given(at+".nats", "credentialsFile", "nkeyFile", "tokenFile", "user"); len(auth) > 1 {
		v.report(at+".nats."+auth[1], "is given besides "+auth[0], "keep one of them")
	}
	v.together(at+".nats", "user", "passwordFile")
	v.together(at+".nats.tls", "certFile", "keyFile")
}

// validBucket follows the rule for names of object stores.
func validBucket(name string) bool {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return name != "" && len(name) <= 200
}

func (v *validator) deadLetter(path string, s *Sink) {
	d, at := s.DeadLetter, path+".deadLetter"
	given := v.given(at, "topic", "subject")
	if v.has(at + ".file") {
		given = append([]string{"file"}, given...)
	}
	switch {
	case len(given) > 1:
		v.report(at+"."+given[1], "is given besides "+given[0], "keep one of them")
	case len(given) == 0 && !v.confused[at] && !v.broken[at+".file"]:
		v.report(at, "has no place", "add file: {}")
	}
	if d.Topic != "" {
		switch topic := v.template(at+".topic", d.Topic, event.EscapeTopic); {
		case s.NATS != nil:
			v.report(at+".topic", "is for a sink with kafka", "write subject and stream, or file: {}")
		case topic != nil && s.Kafka != nil && d.Topic == s.Kafka.Topic:
			v.report(at+".topic", "is the topic of the sink", "choose another")
		}
	}
	if d.Subject == "" {
		if d.Stream != "" {
			v.report(at+".stream", "has no meaning without subject", "remove it, or add subject")
		}
		return
	}
	v.template(at+".subject", d.Subject, event.EscapeSubject)
	switch n := s.NATS; {
	case s.Kafka != nil:
		v.report(at+".subject", "is for a sink with nats", "write topic, or file: {}")
	case n != nil && n.Embedded != nil:
		v.report(at+".subject", "is not for an embedded server", "write file: {}")
	case d.Stream == "" && !v.broken[at+".stream"] && !v.confused[at]:
		v.report(at, "has a subject and no stream", "add the name of the stream that takes it, as in stream: DEAD")
	case n != nil && d.Stream == n.streamName():
		v.report(at+".stream", "is the stream of the sink: it would take an event that is sent again for a repetition of its dead letter", "use a stream of its own")
	}
}
