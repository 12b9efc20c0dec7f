// Package schemas holds the JSON Schemas (draft 2020-12) of what the bridge sends: the data of each payload and of the
// control events, and the CloudEvent of the structured content mode. They stand in the files beside this one, each
// complete in itself. A schema describes what this version sends; members that it does not know are allowed.
package schemas

import (
	"embed"
	"strings"
)

//go:embed *.json
var files embed.FS

const suffix = ".json"

// Names gives the names of all schemas in their order.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil { // embedded
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	return names
}

// Get gives a schema by its name; ok is false if there is none.
func Get(name string) (text string, ok bool) {
	data, err := files.ReadFile(name + suffix)
	return string(data), err == nil
}
