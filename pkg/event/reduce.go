package event

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// Marks are attributes of messages that a destination rejected at first.
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

// attributes yields the attributes.
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

// Reduce returns m with the metadata of its object instead of the whole data, in the form of its payload: an object
// with apiVersion, kind and metadata alone, or a change whose object has these alone, without the old state and the
// patch. It is the same event with the same id, and says what is omitted. An error means that this makes it no smaller.
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

// reducedData returns the payload with the metadata alone. An object has the member metadata, and a change does not.
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

// metadataOf returns an object's apiVersion, kind and metadata. The error does not quote the object.
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

// membersOf returns the values of an object's members with these names, nil for a member that is missing. Unlike
// encoding/json it does not take the member "Metadata" of a custom resource for "metadata". If a name occurs twice, the
// last value counts. The error does not quote the object.
func membersOf(raw []byte, names ...string) ([][]byte, error) {
	raw = raw[jsonscan.Space(raw, 0):]
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errNoObject
	}
	values := make([][]byte, len(names))
	cursor := jsonscan.NewCursor(raw)
	for key, value, ok := cursor.Member(); ok; key, value, ok = cursor.Member() {
		name := key[1 : len(key)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			unquoted, err := jsonscan.Unquote(key)
			if err != nil {
				return nil, errNoObject
			}
			name = []byte(unquoted)
		}
		if i := slices.IndexFunc(names, func(n string) bool { return n == string(name) }); i >= 0 {
			values[i] = value
		}
	}
	if cursor.Bad {
		return nil, errNoObject
	}
	return values, nil
}
