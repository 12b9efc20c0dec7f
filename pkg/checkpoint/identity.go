package checkpoint

import (
	"encoding/binary"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// identityRow returns the row of an object without its body. Between the kind and the manager, its content has the
// checksum of the row with the body, so that both rows count the same in a tally.
func identityRow(key string, o *object.Object, sum uint32) []byte {
	body := o.Bare()
	row := append(make([]byte, sealSize, 128+len(o.Manager)+len(body)), bodyNone)
	row = binary.LittleEndian.AppendUint32(row, sum)
	row = binary.AppendUvarint(row, uint64(len(o.Manager)))
	row = append(append(row, o.Manager...), body...)
	return seal(key, row)
}

// rowSum returns the checksum of a row with its body, even if it has none.
func rowSum(sealed []byte) uint32 {
	if len(sealed) > 2*sealSize && sealed[sealSize] == bodyNone {
		return binary.LittleEndian.Uint32(sealed[sealSize+1:])
	}
	return checksumOf(sealed)
}
