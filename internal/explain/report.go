package explain

import (
	"encoding/json"
	"io"
)

// Report is what becomes of one change.
type Report struct {
	Object    Object   `json:"object"`
	Operation string   `json:"operation"` // at the API server
	Watched   bool     `json:"watched"`   // an entry of `watch` covers the object
	Watch     []Watch  `json:"watch"`
	Notes     []string `json:"notes,omitempty"` // what was assumed
	Sinks     []Sink   `json:"sinks"`
}

// Object is what changed.
type Object struct {
	Resource        string `json:"resource"` // with the group, as in deployments.apps
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Bytes           int    `json:"bytes"` // without managedFields
}

// Watch is one entry of `watch`.
type Watch struct {
	Entry  int    `json:"entry"` // from 0
	Text   string `json:"text"`
	Covers bool   `json:"covers"`
	Why    string `json:"why"`
}

// Sink is what one sink makes of the change.
type Sink struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // nats, kafka, stdout
	// Sent: the sink would be sent a message. Operation is the one that it would be told: a change over the border of its
	// filters is an addition or a leave there; empty if it would be told nothing.
	Sent      bool     `json:"sent"`
	Operation string   `json:"operation,omitempty"`
	Filters   []Filter `json:"filters"`
	Message   *Message `json:"message,omitempty"`
	Error     string   `json:"error,omitempty"` // why the message can't be made or would be refused
}

// Filter is what one rule of a sink says.
type Filter struct {
	Index int    `json:"index"`           // from 0
	State string `json:"state,omitempty"` // "before" or "now", where the two states of an update lie on two sides of the border
	// Belongs: the conditions on the object hold. Passes: those on the change do too.
	Belongs    bool        `json:"belongs"`
	Passes     bool        `json:"passes"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one field of a rule.
type Condition struct {
	Field string `json:"field"`
	Text  string `json:"text"`
	Found string `json:"found,omitempty"` // what it was held against
	Holds bool   `json:"holds"`
	Error string `json:"error,omitempty"` // of an expression, which then counts as true
}

// Message is what the sink would deliver.
type Message struct {
	ID      string `json:"id"`
	Stream  string `json:"stream,omitempty"`
	Subject string `json:"subject,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Key     string `json:"key,omitempty"`
	// Partition is nil if it is not known.
	Partition  *int              `json:"partition,omitempty"`
	Partitions int               `json:"partitions,omitempty"`
	Tombstone  bool              `json:"tombstone,omitempty"`
	Attributes map[string]string `json:"attributes"`
	Headers    []Header          `json:"headers,omitempty"`
	Size       int64             `json:"size"`            // in bytes, as the destination counts
	Limit      int64             `json:"limit,omitempty"` // of the destination; 0: not known
	Unknown    string            `json:"unknown,omitempty"`
	// Oversize is what becomes of a message that is larger than Limit, in words; empty if it is not larger.
	Oversize string `json:"oversize,omitempty"`
}

// Header of a message.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TooLarge reports whether the destination would refuse the message for its size.
func (m *Message) TooLarge() bool { return m.Limit > 0 && m.Size > m.Limit }

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
