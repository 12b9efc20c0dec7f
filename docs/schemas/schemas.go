// Package schemas holds the JSON Schemas (draft 2020-12) of what the bridge sends: the data of each payload and of the
// control events, and the CloudEvent of the structured content mode. Each file is complete in itself. Members and
// attributes that a schema does not know are allowed. It also holds the Avro schema of events.
//
// The directory of the files is their version. The files of a version change only in ways that docs/compatibility.md
// allows, so that each of them describes the events of all releases that name it. An incompatible schema is a file of a
// new version, and the old file stays.
//
// testdata/released contains the schemas of the last release. The tests compare the present ones with them.
package schemas

import (
	"embed"
	"strings"
)

// BaseURL followed by the name of a schema and ".json" is the schema's $id, and the attribute dataschema of the events
// whose data it describes.
const BaseURL = "https://raw.githubusercontent.com/deltabridge/deltabridge/main/docs/schemas/v1/"

//go:embed v1/*.json v1/event.avsc
var files embed.FS

//go:embed v1/event.avsc
var avro string

const dir, suffix = "v1", ".json"

// Names gives the names of all JSON Schemas in their order.
func Names() []string {
	entries, err := files.ReadDir(dir)
	if err != nil { // embedded
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
			names = append(names, name)
		}
	}
	return names
}

// Get gives a JSON Schema by its name; ok is false if there is none.
func Get(name string) (text string, ok bool) {
	data, err := files.ReadFile(dir + "/" + name + suffix)
	return string(data), err == nil
}

// Avro gives the Avro schema of events, event.avsc.
func Avro() string { return avro }
