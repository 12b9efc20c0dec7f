package event

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
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
	var change struct{ Metadata, Operation, Object, ChangedPaths, Managers, Context json.RawMessage }
	err := members(data, func(name string) *json.RawMessage {
		switch name {
		case "metadata":
			return &change.Metadata
		case "operation":
			return &change.Operation
		case "object":
			return &change.Object
		case "changedPaths":
			return &change.ChangedPaths
		case "managers":
			return &change.Managers
		case "context":
			return &change.Context
		}
		return nil
	})
	if err != nil {
		return nil, err
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
	err := members(raw, func(name string) *json.RawMessage {
		switch name {
		case "apiVersion":
			return &doc.APIVersion
		case "kind":
			return &doc.Kind
		case "metadata":
			return &doc.Metadata
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

// members puts the values of an object's members where into says (nil: nowhere). Names have to be equal: encoding/json would
// also take the member "Metadata" of a custom resource for "metadata". Of equal names the last counts. The error does not
// quote the object.
func members(raw []byte, into func(name string) *json.RawMessage) error {
	raw = raw[jsonscan.Space(raw, 0):]
	if len(raw) == 0 || raw[0] != '{' {
		return errNoObject
	}
	cursor := jsonscan.NewCursor(raw)
	for key, value, ok := cursor.Member(); ok; key, value, ok = cursor.Member() {
		name, err := jsonscan.Unquote(key)
		if err != nil {
			return errNoObject
		}
		if field := into(name); field != nil {
			*field = value
		}
	}
	if cursor.Bad {
		return errNoObject
	}
	return nil
}
