// Package laterformat changes the number of the format in files of the state directory, as a later version would.
package laterformat

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/files"
)

// Write gives a file the next format. path is a bbolt file, which it creates if it does not exist, or the directory of
// a spill.
func Write(t testing.TB, path string) { write(t, path, files.Format+1) }

// Restore gives a file the format of this version again.
func Restore(t testing.TB, path string) { write(t, path, files.Format) }

func write(t testing.TB, path string, format int) {
	t.Helper()
	change := bolt
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		change = spill
	}
	if err := change(path, format); err != nil {
		t.Fatal(err)
	}
}

func bolt(path string, format int) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists([]byte("deltabridge"))
		if err != nil {
			return err
		}
		return bucket.Put([]byte("format"), strconv.AppendInt(nil, int64(format), 10))
	})
}

// spill changes both slots of the state file: see internal/segment.
func spill(dir string, format int) error {
	path := filepath.Join(dir, "state")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for slot := 0; slot < len(data); slot += 4096 {
		binary.BigEndian.PutUint32(data[slot+8:], uint32(format))
		sum := crc32.Checksum(data[slot+4:slot+40], crc32.MakeTable(crc32.Castagnoli))
		binary.BigEndian.PutUint32(data[slot:], sum)
	}
	return os.WriteFile(path, data, 0o600)
}
