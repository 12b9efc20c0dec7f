package kafkaread

import (
	"errors"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// ContentTypeAvro is the value of HeaderContentType if the value of a record is Avro. Source: Apache Avro
// specification, HTTP as Transport.
const ContentTypeAvro = "avro/binary"

// The Confluent wire format, in which a value begins with a magic byte, 0, and the id of its schema, 4 bytes.
const (
	magicByte    = 0
	schemaIDSize = 4
)

// parseAvro parses a value in the Confluent wire format. It ignores the id of the schema: it knows the schema, to which
// later versions only append fields.
func parseAvro(value []byte) (event.Received, error) {
	if len(value) <= 1+schemaIDSize || value[0] != magicByte {
		return event.Received{}, errors.New("the value is not Avro in the Confluent wire format")
	}
	return event.ParseAvro(value[1+schemaIDSize:])
}
