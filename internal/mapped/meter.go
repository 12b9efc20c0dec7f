package mapped

import (
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// Limit is how many bytes may be used through a map before it is released.
const Limit = 1 << 20

// Meter counts the bytes that were used through the memory map of one store. The zero value is ready; it is safe for
// concurrent use.
type Meter struct{ bytes atomic.Int64 }

// Used counts bytes that were read or written within tx, a transaction of db that is still open, and releases the map
// after each Limit of them.
func (m *Meter) Used(db *bbolt.DB, tx *bbolt.Tx, bytes int64) {
	if m.bytes.Add(bytes) < Limit {
		return
	}
	m.bytes.Store(0)
	release(db, tx)
}
