package event

import (
	"encoding/json"
	"errors"
	"strconv"
)

// Marks are attributes that only messages have that a destination refused at first.
type Marks struct {
	// Omitted is why Data is not all of the event's data: one of the constants Reason...; empty if it is all. Size is that
	// of the whole data, in bytes.
	Omitted string
	Size    int64
	// Ref is where the whole data is, as a URI, and Digest its "sha256:<hex>"; both are empty if it is nowhere.
	Ref, Digest string

	// Refused is why this is a dead letter, one of the constants Reason..., and Cause what the destination said; empty
	// if it is none.
	Refused, Cause string
}

// attributes yields what Attributes says of them.
func (k *Marks) attributes(yield func(name, value string) bool) bool {
	size := ""
	if k.Omitted != "" {
		size = strconv.FormatInt(k.Size, 10)
	}
	return yieldSet(yield, "dataomitted", k.Omitted) &&
		yieldSet(yield, "datasize", size) &&
		yieldSet(yield, "dataref", k.Ref) &&
		yieldSet(yield, "datadigest", k.Digest) &&
		yieldSet(yield, "refused", k.Refused) &&
		yieldSet(yield, "refusedbecause", k.Cause)
}

var (
	errNotSmaller = errors.New("its data is metadata alone already")
	errNoObject   = errors.New("its data has an unexpected form") // which is not quoted
)

// Reduce gives m with the metadata of its object instead of the whole data, in the form of its payload: an object with
// apiVersion, kind and metadata alone, or a change whose object has these alone, without the old state and the patch. It
// is the same event with the same id, and says what is omitted. An error means that this makes it no smaller.
func Reduce(m *Message, marks Marks) (*Message, error) {
	if m.Type.IsControl() {
		return nil, errNotSmaller
	}
	data, err := reducedData(m.Data)
	if err != nil {
		return nil, err
	}
	if len(data) >= len(m.Data) {
		return nil, errNotSmaller
	}
	reduced := *m
	reduced.Data, reduced.Marks = data, &marks
	return &reduced, nil
}

// reducedData is the payload with the metadata alone. Each object has the member metadata, and a change has not.
func reducedData(data []byte) ([]byte, error) {
	var change struct {
		Metadata     json.RawMessage `json:"metadata"`
		Operation    json.RawMessage `json:"operation"`
		Object       json.RawMessage `json:"object"`
		ChangedPaths json.RawMessage `json:"changedPaths"`
		Managers     json.RawMessage `json:"managers"`
		Context      json.RawMessage `json:"context"`
	}
	if json.Unmarshal(data, &change) != nil {
		return nil, errNoObject
	}
	if change.Metadata != nil || change.Object == nil {
		return metadataOf(data)
	}
	object, err := metadataOf(change.Object)
	if err != nil {
		return nil, err
	}
	dst := make([]byte, 0, len(object)+len(change.ChangedPaths)+len(change.Managers)+changeOverhead)
	dst = append(append(dst, `{"operation":`...), change.Operation...)
	dst = append(append(dst, `,"object":`...), object...)
	dst = append(append(dst, `,"old":null,"patch":null,"changedPaths":`...), change.ChangedPaths...)
	dst = append(append(dst, `,"managers":`...), change.Managers...)
	if change.Context != nil {
		dst = append(appendKey(dst, "context"), change.Context...)
	}
	return append(dst, '}'), nil
}

// metadataOf is apiVersion, kind and metadata of an object. The error does not quote it.
func metadataOf(raw []byte) ([]byte, error) {
	var doc struct {
		APIVersion json.RawMessage `json:"apiVersion,omitempty"`
		Kind       json.RawMessage `json:"kind,omitempty"`
		Metadata   json.RawMessage `json:"metadata,omitempty"`
	}
	if json.Unmarshal(raw, &doc) != nil {
		return nil, errNoObject
	}
	return json.Marshal(doc)
}
