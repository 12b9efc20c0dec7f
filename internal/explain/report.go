package explain

import (
	"encoding/json"
	"io"
)

// Report says what the bridge does with one change.
type Report struct {
	Object    Object   `json:"object"`
	Operation string   `json:"operation"` // operation at the API server
	Watched   bool     `json:"watched"`   // an entry of `watch` covers the object
	Watch     []Watch  `json:"watch"`
	Notes     []string `json:"notes,omitempty"` // assumptions, and what could not be read
	Sinks     []Sink   `json:"sinks"`
}

// Object is the object that changed.
type Object struct {
	Resource        string `json:"resource"` // with the group, as in deployments.apps
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Bytes           int    `json:"bytes"` // size as JSON, without managedFields
}

// Watch says whether one entry of `watch` covers the object.
type Watch struct {
	Entry  int    `json:"entry"` // index of the entry, from 0
	Text   string `json:"text"`
	Covers bool   `json:"covers"`
	Why    string `json:"why"`
}

// Sink says what one sink does with the change.
type Sink struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // nats, kafka, stdout
	// Sent is true if the change leads to a message. Operation is the operation in that message: a change across the
	// border of the sink's filters is an addition or a leave. It is empty if the filters suppress the change.
	Sent      bool     `json:"sent"`
	Operation string   `json:"operation,omitempty"`
	Filters   []Filter `json:"filters"`
	Message   *Message `json:"message,omitempty"`
	Error     string   `json:"error,omitempty"` // why the message can't be encoded or would be rejected
}

// Filter is the verdict of one rule of a sink.
type Filter struct {
	Index int    `json:"index"`           // index of the rule, from 0
	State string `json:"state,omitempty"` // "before" or "now" if an update crosses the border, otherwise empty
	// Belongs is true if the conditions on the object hold, Passes if those on the change hold too.
	Belongs    bool        `json:"belongs"`
	Passes     bool        `json:"passes"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one field of a rule.
type Condition struct {
	Field string `json:"field"`
	Text  string `json:"text"`
	Found string `json:"found,omitempty"` // value in the object
	Holds bool   `json:"holds"`
	Error string `json:"error,omitempty"` // error of an expression; the expression then counts as true
}

// Message is the message that the sink would deliver.
type Message struct {
	ID      string `json:"id"`
	Stream  string `json:"stream,omitempty"`
	Subject string `json:"subject,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Key     string `json:"key,omitempty"`
	// Partition is nil if it is not known or the destination has no partitions.
	Partition  *int              `json:"partition,omitempty"`
	Partitions int               `json:"partitions,omitempty"`
	Tombstone  bool              `json:"tombstone,omitempty"`
	Attributes map[string]string `json:"attributes"`
	Headers    []Header          `json:"headers,omitempty"`
	Size       int64             `json:"size"`              // in bytes, as the destination counts
	Limit      int64             `json:"limit,omitempty"`   // size limit of the destination; 0 if it is not known
	Unknown    string            `json:"unknown,omitempty"` // error that kept the destination from answering in full
	// Oversize describes what the sink does with a message larger than Limit. It is empty if the message is not larger.
	Oversize string `json:"oversize,omitempty"`
}

// Header is a header of a message.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TooLarge reports whether the destination would reject the message because of its size.
func (m *Message) TooLarge() bool { return m.Limit > 0 && m.Size > m.Limit }

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
