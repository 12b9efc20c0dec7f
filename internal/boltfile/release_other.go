//go:build !linux

package boltfile

import "go.etcd.io/bbolt"

// release does nothing here.
func release(*bbolt.DB, *bbolt.Tx) {}
