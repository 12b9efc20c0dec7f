package evaluate

import (
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Report describes how the bridge handles one change.
type Report struct {
	Object    Object   `json:"object"`
	Operation string   `json:"operation"` // the operation at the API server
	Watched   bool     `json:"watched"`   // whether an entry of `watch` covers the object, before or after the change
	Watch     []Watch  `json:"watch"`
	Notes     []string `json:"notes,omitempty"` // assumptions and failed requests
	Sinks     []Sink   `json:"sinks"`
}

// Object identifies the changed object.
type Object struct {
	Resource        string `json:"resource"` // includes the group, as in deployments.apps
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Bytes           int    `json:"bytes"` // size of the JSON without managedFields
}

// Watch describes whether one entry of `watch` covers the object, before or after the change.
type Watch struct {
	Entry  int    `json:"entry"` // index of the entry, from 0
	Text   string `json:"text"`
	Covers bool   `json:"covers"`
	Why    string `json:"why"`
}

// Sink describes how one sink handles the change.
type Sink struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // nats, kafka or stdout
	// Sent reports whether the sink sends a message about the change. Operation is the operation in this message. It is
	// an addition or a leave if the object starts or stops passing the sink's filters. It is empty if the filters
	// suppress the change.
	Sent      bool             `json:"sent"`
	Operation string           `json:"operation,omitempty"`
	Filters   []filter.Verdict `json:"filters"`
	Message   *Message         `json:"message,omitempty"`
	Error     string           `json:"error,omitempty"` // why the message could not be encoded or would be rejected

	// messages are all messages because of the change. The change of a namespace can cause several.
	messages []*Message
}

// describe sets the fields that describe the message about the object.
func (s *Sink) describe() {
	if len(s.messages) == 0 {
		return
	}
	m := s.messages[0]
	s.Error = m.rejected
	if m.operation != event.Gap.String() {
		s.Sent, s.Operation, s.Message = true, m.operation, m
	}
}

// Message describes a message that a sink would send.
type Message struct {
	ID         string            `json:"id"`
	Attributes map[string]string `json:"attributes"`
	diagnose.Placement
	// Incomplete is the reason why Placement is incomplete. It is empty if Placement is complete.
	Incomplete string `json:"unknown,omitempty"`
	// Oversize names the setting of the sink for a message larger than Limit. It is empty if the message does not exceed
	// Limit.
	Oversize string `json:"oversize,omitempty"`

	change    int // index of the change in a test
	operation string
	about     string // the object
	headers   map[string]string
	rejected  string // why the message could not be encoded or would be rejected
	data      any
}
