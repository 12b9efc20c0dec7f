//go:build !linux

package boltfile

import "go.etcd.io/bbolt"

// release does nothing on systems other than Linux.
func release(*bbolt.DB, *bbolt.Tx) {}
