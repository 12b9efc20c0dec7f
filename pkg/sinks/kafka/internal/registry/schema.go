package registry

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/deltabridge/deltabridge/docs/schemas"
)

// Format is what values are encoded in, and the kind of their schema.
type Format string

// The formats.
const (
	FormatAvro Format = "avro"
	FormatJSON Format = "json"
)

// schema is the schema of events in a format.
type schema struct {
	sr.Schema
	kind string // for people
	name string // of `bridge schema --event`
}

func (f Format) schema() schema {
	if f == FormatAvro {
		return schema{sr.Schema{Schema: schemas.Avro(), Type: sr.TypeAvro}, "Avro", "avro"}
	}
	const name = "cloudevent"
	text, _ := schemas.Get(name) // embedded
	return schema{sr.Schema{Schema: text, Type: sr.TypeJSON}, "JSON Schema", name}
}

// ID identifies a schema in a registry. The zero value means that the registry does not have the schema.
type ID struct {
	Number int
	GUID   string // empty if the registry has no GUIDs, or if the format does not use them
}

// The first byte of an encoded id.
const (
	magicNumber = 0
	magicGUID   = 1
)

const guidSize = 16

// Encode returns the id as it is in records: a byte 1 and the GUID, or a byte 0 and the number. All tools that read the
// Confluent wire format know the number, and those that read schema ids from headers know both.
func (id ID) Encode() string {
	guid, err := hex.DecodeString(strings.ReplaceAll(id.GUID, "-", ""))
	if err == nil && len(guid) == guidSize {
		return string(append([]byte{magicGUID}, guid...))
	}
	return string(binary.BigEndian.AppendUint32([]byte{magicNumber}, uint32(id.Number)))
}
