package event

import (
	"errors"
	"slices"
	"strconv"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// Marks contains the attributes of messages that a destination rejected at first.
type Marks struct {
	// Omitted is the reason why Data is incomplete, one of the Reason constants. It is empty if Data is complete. Size is
	// the size of the complete data in bytes.
	Omitted string
	Size    int64
	// Ref is the URI of the complete data, and Digest is its digest in the form "sha256:<hex>". Both are empty if the
	// complete data is not stored.
	Ref, Digest string

	// Refused is the reason why the message is a dead letter, one of the Reason constants. Cause is the destination's
	// error message. Both are empty if the message is not a dead letter.
	Refused, Cause string
}

// attributes yields the names and values of the attributes.
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
	errNotSmaller = errors.New("its data already contains only metadata")
	errNoObject   = errors.New("its data is not a JSON object") // The error does not quote the data.
)

// Reduce returns a copy of m whose data contains only the metadata of the object. An object is reduced to apiVersion,
// kind and metadata. A change keeps an object that is reduced in the same way, and loses the old state and the patch.
// The event and its id stay the same, and marks describes the omitted data. Reduce returns an error if the data cannot
// be reduced or the result would not be smaller.
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

// reducedData returns the payload reduced to the metadata. It recognizes an object by the member "metadata", which a
// change does not have.
func reducedData(data []byte) ([]byte, error) {
	found, err := membersOf(data, "metadata", "operation", "object", "changedPaths", "managers", "context")
	if err != nil {
		return nil, err
	}
	metadata, operation, object := found[0], found[1], found[2]
	changedPaths, managers, context := found[3], found[4], found[5]
	if metadata != nil || object == nil {
		return metadataOf(data)
	}
	if object, err = metadataOf(object); err != nil {
		return nil, err
	}
	dst := make([]byte, 0, len(object)+len(changedPaths)+len(managers)+changeOverhead)
	dst = append(append(dst, `{"operation":`...), operation...)
	dst = append(append(dst, `,"object":`...), object...)
	dst = append(append(dst, `,"old":null,"patch":null,"changedPaths":`...), changedPaths...)
	dst = append(append(dst, `,"managers":`...), managers...)
	if context != nil {
		dst = append(jsonpatch.AppendKey(dst, "context"), context...)
	}
	return append(dst, '}'), nil
}

// metadataOf returns an object's apiVersion, kind and metadata. Errors do not quote the object.
func metadataOf(raw []byte) ([]byte, error) {
	names := [...]string{"apiVersion", "kind", "metadata"}
	values, err := membersOf(raw, names[:]...)
	if err != nil {
		return nil, err
	}
	dst := append(make([]byte, 0, len(values[2])+128), '{')
	for i, value := range values {
		if value != nil {
			dst = append(jsonpatch.AppendKey(dst, names[i]), value...)
		}
	}
	return append(dst, '}'), nil
}

// membersOf returns the values of the named members, and nil for missing members. Unlike encoding/json, membersOf is
// case-sensitive: it does not confuse a custom resource's member "Metadata" with "metadata". If a name occurs twice,
// membersOf uses the last value. Errors do not quote the object.
func membersOf(raw []byte, names ...string) ([][]byte, error) {
	start := jsonscan.Space(raw, 0)
	w := jsonscan.Open(raw, start, '{')
	values := make([][]byte, len(names))
	for key, value := range w.All {
		if i := slices.IndexFunc(names, func(name string) bool { return name == string(key) }); i >= 0 {
			values[i] = value
		}
	}
	if w.Bad || raw[start] != '{' {
		return nil, errNoObject
	}
	return values, nil
}
