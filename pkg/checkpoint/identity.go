package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// ErrNoBody is wrapped by the error of Fetch if the store contains only the identity of the requested state.
var ErrNoBody = errors.New("only the identity of the object is stored")

// identity is the JSON of an object in a row without a body.
type identity struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   struct {
		Namespace       string `json:"namespace,omitempty"`
		Name            string `json:"name"`
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
}

// identityRow returns the row of an object without its body. Between the kind and the manager, its content has the
// checksum of the row with the body, so that both rows count the same in a tally.
func identityRow(key string, o *object.Object, sum uint32) ([]byte, error) {
	i := identity{APIVersion: o.APIVersion(), Kind: o.Kind()}
	m := &i.Metadata
	m.Namespace, m.Name, m.UID, m.ResourceVersion = o.Namespace, o.Name, string(o.UID), o.ResourceVersion
	body, err := json.Marshal(i)
	row := append(make([]byte, sealSize, 128+len(o.Manager)+len(body)), bodyNone)
	row = binary.LittleEndian.AppendUint32(row, sum)
	row = binary.AppendUvarint(row, uint64(len(o.Manager)))
	row = append(append(row, o.Manager...), body...)
	return seal(key, row), err
}

// rowSum returns the checksum of a row with its body, even if it has none.
func rowSum(sealed []byte) uint32 {
	if len(sealed) > 2*sealSize && sealed[sealSize] == bodyNone {
		return binary.LittleEndian.Uint32(sealed[sealSize+1:])
	}
	return checksumOf(sealed)
}
