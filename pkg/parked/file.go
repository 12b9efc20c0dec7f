package parked

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/event"
)

const (
	prefix, suffix = "parked-", ".db" // a file name is prefix, sink name, suffix

	// bucketEvents contains all events. An event's key is its destination, a zero byte and its number. Its value is a
	// checksum followed by the stored event.
	bucketEvents = "events"
	numberBytes  = 8
	sumBytes     = 4
)

// file is a bbolt file with the parked events of a sink. It implements Storage.
type file struct {
	path string
	db   *boltfile.File // nil if no file exists
}

// open opens the file. It returns an error that is fs.ErrNotExist if no file exists.
func (f *file) open(o boltfile.Options) error {
	db, err := boltfile.Open(f.path, o)
	if err != nil {
		return err
	}
	f.db = db
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketEvents)) == nil {
			return fmt.Errorf("%w: not a file of parked events", boltfile.ErrDamaged)
		}
		return nil
	})
}

// Each implements Storage.
func (f *file) Each(after string, call func(key string, value []byte) bool) error {
	if f.db == nil {
		return nil
	}
	return f.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte(bucketEvents)).Cursor()
		k, v := c.Seek([]byte(after))
		if string(k) == after {
			k, v = c.Next()
		}
		for ; k != nil && call(string(k), v); k, v = c.Next() {
			f.db.Release(tx, int64(len(v)))
		}
		return nil
	})
}

// Update implements Storage. It creates the file if it does not exist, and removes it when it contains no events.
func (f *file) Update(put map[string][]byte, remove []string) (events int, bytes int64, err error) {
	if err := f.create(); err != nil {
		return 0, 0, err
	}
	empty := false
	err = f.db.Update(func(tx *bbolt.Tx) error {
		all := tx.Bucket([]byte(bucketEvents))
		events, bytes = 0, 0
		for _, key := range remove {
			if value := all.Get([]byte(key)); value != nil {
				events, bytes = events+1, bytes+int64(len(value))
			}
			if err := all.Delete([]byte(key)); err != nil {
				return err
			}
		}
		for _, key := range slices.Sorted(maps.Keys(put)) {
			if err := all.Put([]byte(key), put[key]); err != nil {
				return err
			}
			f.db.Release(tx, int64(len(put[key])))
		}
		first, _ := all.Cursor().First()
		empty = first == nil
		return nil
	})
	if err == nil && empty {
		err = f.remove()
	}
	return events, bytes, err
}

// Close implements Storage.
func (f *file) Close() error {
	if f.db == nil {
		return nil
	}
	err := f.db.Close()
	f.db = nil
	return err
}

// create creates the file if it does not exist. The file is durable before the first event is written.
func (f *file) create() error {
	if f.db != nil {
		return nil
	}
	err := boltfile.Prepare(f.path, boltfile.Options{}, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte(bucketEvents))
			return err
		})
	})
	if err == nil {
		f.db, err = boltfile.Install(f.path, boltfile.Options{})
	}
	return boltfile.Explain("create the file of parked events", f.path, err)
}

// remove closes and removes the file, to free disk space when no events are parked.
func (f *file) remove() error { return errors.Join(f.Close(), os.Remove(f.path)) }

func keyOf(destination string, number uint64) string {
	return string(binary.BigEndian.AppendUint64(append([]byte(destination), 0), number))
}

// destinationOf returns the destination in the key of an event. It returns false if key is not one.
func destinationOf(key string) (destination string, ok bool) {
	end := len(key) - 1 - numberBytes
	if end < 0 || key[end] != 0 {
		return "", false
	}
	return key[:end], true
}

func numberOf(key string) uint64 { return binary.BigEndian.Uint64([]byte(key[len(key)-numberBytes:])) }

// isOf reports whether key is the key of an event of the destination.
func isOf(destination, key string) bool {
	return len(key) == len(destination)+1+numberBytes && strings.HasPrefix(key, destination+"\x00")
}

// encode returns the value under which an event is stored.
func encode(m *event.Message) ([]byte, error) {
	value, err := m.AppendStored(make([]byte, sumBytes, sumBytes+len(m.Data)+512))
	if err == nil {
		binary.BigEndian.PutUint32(value, checksum(value[sumBytes:]))
	}
	return value, err
}

// parse returns the event in a stored value. The message keeps a reference to value.
func parse(value []byte) (*event.Message, error) {
	if len(value) < sumBytes || binary.BigEndian.Uint32(value) != checksum(value[sumBytes:]) {
		return nil, errors.New("wrong checksum")
	}
	return event.ParseStored(value[sumBytes:])
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// Read returns the queues of a sink without changing its file. No process may have the file open for writing.
func Read(dir, sink string) ([]Queue, error) {
	f := &file{path: pathOf(dir, sink)}
	s := &Store{storage: f, queues: map[string]*Queue{}}
	err := f.open(boltfile.Options{ReadOnly: true})
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return nil, boltfile.Explain("read the parked events", f.path, errors.Join(err, f.Close()))
	}
	return s.Queues(), f.Close()
}

func pathOf(dir, sink string) string { return filepath.Join(dir, prefix+sink+suffix) }
