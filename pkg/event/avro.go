package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// avroType is the type of a field of the Avro record.
type avroType byte

const (
	avroString         avroType = iota // an attribute that every event has
	avroNullableString                 // null if the event does not have the attribute
	avroNullableLong
	avroBoolean
	avroMillis // time since 1970
)

type avroField struct {
	name string
	typ  avroType
}

// avroFields are the fields of the Avro record, without data, in the order of Message.Attributes.
// docs/schemas/v1/event.avsc is its schema.
//
//nolint:gochecknoglobals // constant in all but name
var avroFields = [...]avroField{
	{"id", avroString},
	{"source", avroString},
	{"type", avroString},
	{"subject", avroString},
	{"time", avroMillis},
	{"dataschema", avroNullableString},
	{"cluster", avroString},
	{"clusteruid", avroNullableString},
	{"operation", avroNullableString},
	{"apiversion", avroString},
	{"kind", avroNullableString},
	{"resource", avroString},
	{"namespace", avroNullableString},
	{"name", avroNullableString},
	{"uid", avroNullableString},
	{"resourceversion", avroNullableString},
	{"changedby", avroNullableString},
	{"initiallist", avroBoolean},
	{"finalstateunknown", avroBoolean},
	{"leftfilter", avroBoolean},
	{"resent", avroBoolean},
	{"dataomitted", avroNullableString},
	{"datasize", avroNullableLong},
	{"dataref", avroNullableString},
	{"datadigest", avroNullableString},
	{"owner", avroNullableString},
	{"owneruid", avroNullableString},
	{"namespacelabels", avroNullableString},
	{"involvedlabels", avroNullableString},
}

// AppendAvro appends the event to dst as an Avro record of the schema docs/schemas/v1/event.avsc. It contains the
// attributes and the data, whatever the content mode of the message is. Source: Apache Avro 1.12 specification, Binary
// Encoding.
func (m *Message) AppendAvro(dst []byte) []byte {
	rest := avroFields[:]
	for name, value := range m.Attributes {
		n := slices.IndexFunc(rest, func(f avroField) bool { return f.name == name })
		if n < 0 {
			continue // an attribute that is the same for all events, or that a record does not need
		}
		dst = appendAvroDefaults(dst, rest[:n])
		dst = m.appendAvroField(dst, rest[n].typ, value)
		rest = rest[n+1:]
	}
	dst = appendAvroDefaults(dst, rest)
	return appendAvroText(dst, m.Data)
}

func (m *Message) appendAvroField(dst []byte, typ avroType, value string) []byte {
	switch typ {
	case avroMillis:
		return binary.AppendVarint(dst, m.Time.UnixMilli())
	case avroBoolean:
		return append(dst, 1)
	case avroNullableLong:
		number, _ := strconv.ParseInt(value, 10, 64) // Marks.attributes has formatted it.
		return binary.AppendVarint(binary.AppendVarint(dst, 1), number)
	case avroNullableString:
		dst = binary.AppendVarint(dst, 1) // the second type of the union
	}
	return appendAvroText(dst, value)
}

// appendAvroDefaults appends fields whose attributes the event does not have: null and false have the same encoding,
// and so has an empty string.
func appendAvroDefaults(dst []byte, fields []avroField) []byte {
	for range fields {
		dst = append(dst, 0)
	}
	return dst
}

func appendAvroText[T string | []byte](dst []byte, text T) []byte {
	return append(binary.AppendVarint(dst, int64(len(text))), text...)
}

var errAvro = errors.New("read Avro event: it is not a record of the bridge's schema")

// ParseAvro parses an Avro record that AppendAvro of this or a later version has encoded.
func ParseAvro(record []byte) (Received, error) {
	r := Received{Attributes: map[string]string{"specversion": "1.0", "datacontenttype": dataContentType}}
	in := avroReader{rest: record}
	for _, f := range avroFields {
		if value := in.field(f.typ); value != "" {
			r.Attributes[f.name] = value
		}
	}
	r.Data = in.text()
	if in.failed || r.Attributes["id"] == "" {
		return Received{}, errAvro
	}
	return r, nil
}

// avroReader reads a record. After the first failure, all values are empty.
type avroReader struct {
	rest   []byte
	failed bool
}

func (in *avroReader) field(typ avroType) string {
	if typ == avroNullableString || typ == avroNullableLong {
		if in.long() == 0 {
			return ""
		}
	}
	switch typ {
	case avroMillis:
		return time.UnixMilli(in.long()).UTC().Format(time.RFC3339Nano)
	case avroNullableLong:
		return strconv.FormatInt(in.long(), 10)
	case avroBoolean:
		if in.long() == 0 {
			return ""
		}
		return fmt.Sprint(true)
	}
	return string(in.text())
}

func (in *avroReader) long() int64 {
	value, n := binary.Varint(in.rest)
	if n <= 0 {
		in.failed, in.rest = true, nil
		return 0
	}
	in.rest = in.rest[n:]
	return value
}

func (in *avroReader) text() []byte {
	n := in.long()
	if n < 0 || n > int64(len(in.rest)) {
		in.failed, in.rest = true, nil
		return nil
	}
	text := in.rest[:n]
	in.rest = in.rest[n:]
	return text
}
