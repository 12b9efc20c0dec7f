// Package patch shows how the patch of the payload "change" is applied.
package patch

import (
	"bytes"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// Apply gives the member "object" of a change, made of "old" and "patch" as they are in the event.
func Apply(old, patch []byte) ([]byte, error) {
	if bytes.HasPrefix(bytes.TrimSpace(patch), []byte("{")) {
		return jsonpatch.MergePatch(old, patch) // patch: merge, RFC 7386
	}
	operations, err := jsonpatch.DecodePatch(patch) // patch: json, RFC 6902
	if err != nil {
		return nil, fmt.Errorf("read patch: %w", err)
	}
	return operations.Apply(old)
}
