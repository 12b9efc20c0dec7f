//go:build !linux

package mapped

import "go.etcd.io/bbolt"

// release does nothing here.
func release(*bbolt.DB, *bbolt.Tx) {}
