package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/avro"

	"github.com/deltabridge/deltabridge/docs/schemas"
)

// avroSchema is the schema of all Avro records.
//
//nolint:gochecknoglobals // constant, but parsed only if it is used
var avroSchema = sync.OnceValue(func() *avro.Schema { return avro.MustParse(schemas.Avro()) })

// AppendAvro appends the event to dst as an Avro record of the schema docs/schemas/v1/event.avsc. It contains the
// attributes and the data, whatever the content mode of the message is.
func (m *Message) AppendAvro(dst []byte) []byte {
	record := map[string]any{"data": m.Data}
	for name, value := range m.Attributes {
		switch name {
		case "initiallist", "finalstateunknown", "leftfilter":
			record[name] = true
		case "datasize":
			record[name] = json.Number(value)
		default:
			record[name] = value
		}
	}
	dst, err := avroSchema().AppendEncode(dst, record) // The schema has defaults for what is not in record.
	if err != nil {
		panic("schema of events: " + err.Error()) // A field has another type, which tests detect.
	}
	return dst
}

// ParseAvro parses an Avro record that AppendAvro of this or a later version has encoded: later versions of the schema
// only append fields.
func ParseAvro(record []byte) (Received, error) {
	var fields map[string]any
	if _, err := avroSchema().Decode(record, &fields); err != nil {
		return Received{}, fmt.Errorf("read Avro event: %w", err)
	}
	r := Received{Attributes: map[string]string{"specversion": "1.0", "datacontenttype": dataContentType}}
	for name, value := range fields {
		switch value := value.(type) {
		case nil:
		case time.Time:
			r.Attributes[name] = value.UTC().Format(time.RFC3339Nano)
		case bool:
			if value {
				r.Attributes[name] = fmt.Sprint(true)
			}
		default:
			r.Attributes[name] = fmt.Sprint(value)
		}
	}
	r.Data = []byte(r.Attributes["data"])
	delete(r.Attributes, "data")
	if r.Attributes["id"] == "" {
		return Received{}, errors.New("read Avro event: it has no id")
	}
	return r, nil
}
