package explain

import (
	"encoding/json"
	"io"

	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
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
	Sent      bool             `json:"sent"`
	Operation string           `json:"operation,omitempty"`
	Filters   []filter.Verdict `json:"filters"`
	Message   *Message         `json:"message,omitempty"`
	Error     string           `json:"error,omitempty"` // why the message cannot be encoded or would be rejected
}

// Message is the message that the sink would deliver.
type Message struct {
	ID         string            `json:"id"`
	Attributes map[string]string `json:"attributes"`
	diagnose.Placement
	// Incomplete is the error that kept the destination from answering in full.
	Incomplete string `json:"unknown,omitempty"`
	// Oversize describes what the sink does with a message larger than Limit. It is empty if the message is not larger.
	Oversize string `json:"oversize,omitempty"`
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
