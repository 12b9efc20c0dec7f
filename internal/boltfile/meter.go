package boltfile

import (
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// meterLimit is how many bytes may be used through a map before it is released.
const meterLimit = 1 << 20

// meter keeps the memory map of a file from counting as memory of the process: limits, alarms and people take it for a
// leak. Released pages stay in the kernel's cache, from where they are mapped again when they are read, at the cost of a
// minor fault. The zero value is ready; it is safe for concurrent use.
type meter struct{ bytes atomic.Int64 }

// use counts bytes that were read or written within tx, a transaction of db that is still open, and releases the map
// after each meterLimit of them.
func (m *meter) use(db *bbolt.DB, tx *bbolt.Tx, bytes int64) {
	if m.bytes.Add(bytes) < meterLimit {
		return
	}
	m.bytes.Store(0)
	release(db, tx)
}
