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
	errNoMetadata = errors.New("its data has no metadata")
)

// Reduce returns a copy of m whose data contains only the metadata of the object. An object is reduced to apiVersion,
// kind and metadata. In a change, the object is reduced in the same way, and the old state and the patch become null.
// The states of PayloadDebezium are reduced likewise. An audit event is reduced as API servers do it: it has no request
// and response object.
// The event and its id stay the same, and marks describes the omitted data. Reduce returns an error if the data cannot
// be reduced or the result would not be smaller.
func Reduce(m *Message, marks Marks) (*Message, error) {
	if m.Type.IsControl() {
		return nil, errNotSmaller
	}
	reduce := reducedData
	if m.Type == Audit {
		reduce = reducedAudit
	}
	data, err := reduce(m.Data)
	if err != nil {
		return nil, err
	}
	if len(data) >= len(m.Data) {
		return nil, errNotSmaller
	}
	reduced := *m
	reduced.Data, reduced.Marks = data, &marks
	if reduced.Payload == "" && m.Type != Audit {
		reduced.Payload = PayloadMetadata
	}
	return &reduced, nil
}

// reducedData returns the payload reduced to the metadata. It recognizes an object by the member "metadata", which the
// other payloads do not have.
func reducedData(data []byte) ([]byte, error) {
	object := jsonscan.Member(data, "object")
	switch {
	case jsonscan.Member(data, "metadata") != nil:
		return metadataOf(data)
	case isDebezium(data):
		return reducedDebezium(data)
	case object == nil:
		return metadataOf(data)
	}
	object, err := metadataOf(object)
	if err != nil {
		return nil, err
	}
	dst := append(make([]byte, 0, len(data)), '{')
	for _, name := range []string{"operation", "object", "old", "patch", "changedPaths", "managers"} {
		value := jsonscan.Member(data, name)
		switch name {
		case "object":
			value = object
		case "old", "patch":
			value = []byte("null")
		}
		dst = appendMember(dst, name, value)
	}
	return append(dst, '}'), nil
}

// metadataOf returns an object's apiVersion, kind and metadata. Unlike encoding/json, it is case-sensitive: it does not
// confuse a custom resource's member "Metadata" with "metadata". If a member occurs twice, the last one counts. Errors
// do not quote the object.
func metadataOf(raw []byte) ([]byte, error) {
	names := [...]string{"apiVersion", "kind", "metadata"}
	var values [len(names)][]byte
	w := jsonscan.Open(raw, 0, '{')
	for key, value := range w.All {
		if i := slices.Index(names[:], string(key)); i >= 0 {
			values[i] = value
		}
	}
	if values[2] == nil {
		return nil, errNoMetadata
	}
	dst := append(make([]byte, 0, len(values[2])+128), '{')
	for i, name := range names {
		dst = appendMember(dst, name, values[i])
	}
	return append(dst, '}'), nil
}

// appendMember appends a member to a JSON object that is not complete. It appends nothing if value is nil.
func appendMember(dst []byte, name string, value []byte) []byte {
	if value == nil {
		return dst
	}
	return append(jsonpatch.AppendKey(dst, name), value...)
}
