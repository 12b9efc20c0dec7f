package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// Event is an audit event of Kubernetes (audit.k8s.io/v1). The fields are a part of what Raw contains.
type Event struct {
	AuditID string // chosen by the client if it sends the header Audit-ID, otherwise by the API server
	Stage   string
	// Received and StageTime are zero if the event has no such time.
	Received, StageTime time.Time
	Object              ObjectReference
	// Raw is the event as it arrived: one JSON object, without kind and apiVersion.
	Raw []byte
}

// ObjectReference is the objectRef of an event. It is empty for requests that are not about a resource.
type ObjectReference struct {
	APIGroup, APIVersion, Resource, Subresource string
	Namespace, Name                             string
}

// idTime is the format of times in audit events and in ids.
const idTime = "2006-01-02T15:04:05.000000Z07:00"

// ID returns the id of the event, which is the same whenever the event is sent again: auditID, stage and the time at
// which the request was received. The time is required because clients can choose the auditID (header Audit-ID), and
// because an aggregated API server uses the auditID of kube-apiserver. Without it, a client could hide a request from
// consumers that ignore duplicates.
func (e *Event) ID() string {
	id := e.AuditID + "." + e.Stage
	if !e.Received.IsZero() {
		id += "." + e.Received.UTC().Format(idTime)
	}
	return id
}

// parser reads the parts of an event's JSON that an Event requires, in one pass. Its fields alias the scanned bytes.
type parser struct {
	validate bool // check that all values are valid JSON

	auditID, stage, received, stageTime []byte
	object                              reference
	text                                []byte // buffer of the method event
}

// reference contains the fields of an objectRef.
type reference struct {
	apiGroup, apiVersion, resource, subresource []byte
	namespace, name                             []byte
}

// parse reads the event that opens at b[i]. It returns the offset after the event, or -1 if it is not valid JSON.
func (p *parser) parse(b []byte, i int) int {
	*p = parser{validate: p.validate, text: p.text}
	w := jsonscan.Open(b, i, '{')
	for w.Next() {
		key := w.Key
		value := w.Value()
		if key == nil || p.validate && !json.Valid(value) {
			return -1
		}
		switch string(key) {
		case "auditID":
			p.auditID = jsonscan.Text(value)
		case "stage":
			p.stage = jsonscan.Text(value)
		case "requestReceivedTimestamp":
			p.received = jsonscan.Text(value)
		case "stageTimestamp":
			p.stageTime = jsonscan.Text(value)
		case "objectRef":
			p.object.read(value)
		}
	}
	return w.End()
}

func (r *reference) read(b []byte) {
	*r = reference{} // only the last of several equal keys counts
	w := jsonscan.Open(b, 0, '{')
	for key, value := range w.All {
		text := jsonscan.Text(value)
		switch string(key) {
		case "apiGroup":
			r.apiGroup = text
		case "apiVersion":
			r.apiVersion = text
		case "resource":
			r.resource = text
		case "subresource":
			r.subresource = text
		case "namespace":
			r.namespace = text
		case "name":
			r.name = text
		}
	}
}

// check returns an error if the parsed event has no identity.
func (p *parser) check() error {
	switch {
	case len(p.auditID) == 0:
		return errors.New("has no auditID")
	case len(p.stage) == 0:
		return errors.New("has no stage")
	}
	return nil
}

// parseEvent reads an event that parseList has accepted. The result shares no memory with raw, except the field Raw.
func (p *parser) parseEvent(raw []byte) (Event, error) {
	if p.parse(raw, 0) < 0 {
		return Event{}, errNotJSON
	}
	if err := p.check(); err != nil {
		return Event{}, fmt.Errorf("an audit event %w", err)
	}
	return p.event(raw), nil
}

func (p *parser) event(raw []byte) Event {
	o := &p.object
	parts := [...][]byte{
		p.auditID, p.stage, o.apiGroup, o.apiVersion, o.resource, o.subresource, o.namespace, o.name,
	}
	p.text = p.text[:0]
	for _, part := range parts {
		p.text = append(p.text, part...)
	}
	rest, n := string(p.text), 0 // all strings share one allocation, because they have the same lifetime
	next := func() (s string) {
		s, rest = rest[:len(parts[n])], rest[len(parts[n]):]
		n++
		return s
	}
	e := Event{AuditID: next(), Stage: next(), Raw: raw}
	e.Object = ObjectReference{
		APIGroup: next(), APIVersion: next(), Resource: next(), Subresource: next(), Namespace: next(), Name: next(),
	}
	e.Received, e.StageTime = timeOf(p.received), timeOf(p.stageTime)
	return e
}

// timeOf returns the zero time if the text is not a valid time.
func timeOf(text []byte) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, string(text))
	return t
}
