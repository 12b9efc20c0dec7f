package console

import (
	"encoding/json"
	"io"
)

// WriteJSON writes a value as indented JSON, without HTML escapes.
func WriteJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
