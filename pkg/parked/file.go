package parked

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/event"
)

const (
	prefix, suffix = "parked-", ".db" // a file name is prefix, sink name, suffix
	format         = "1"
)

// These are the names of the buckets and keys in the file. The bucket bucketQueues contains one bucket per destination,
// which contains a bucket bucketEvents. An event's key is its number. Its value is a checksum followed by the stored
// event.
const (
	bucketQueues = "queues"
	bucketEvents = "events"
	keyFormat    = "format"
	sumBytes     = 4
)

// load reads and counts all events in the file.
func (s *Store) load(file *boltfile.File) error {
	return file.View(func(tx *bbolt.Tx) error {
		queues := tx.Bucket([]byte(bucketQueues))
		if queues == nil || string(queues.Get([]byte(keyFormat))) != format {
			return fmt.Errorf("%w: not a file of parked events, or of another version", boltfile.ErrDamaged)
		}
		return queues.ForEachBucket(func(name []byte) error {
			events := eventsOf(tx, string(name))
			if events == nil {
				return fmt.Errorf("%w: queue %s has no events", boltfile.ErrDamaged, name)
			}
			return events.ForEach(func(key, value []byte) error {
				if len(key) != 8 {
					return fmt.Errorf("%w: queue %s: key of %d bytes", boltfile.ErrDamaged, name, len(key))
				}
				m, _ := parse(value) // if the event is damaged, Head skips it later
				s.count(string(name), binary.BigEndian.Uint64(key), len(value), m)
				file.Release(tx, int64(len(value)))
				return nil
			})
		})
	})
}

// eventsOf returns the events bucket of a destination, which must have events.
func eventsOf(tx *bbolt.Tx, destination string) *bbolt.Bucket {
	return tx.Bucket([]byte(bucketQueues)).Bucket([]byte(destination)).Bucket([]byte(bucketEvents))
}

// put appends an event and returns its number.
func put(tx *bbolt.Tx, destination string, value []byte) (number uint64, err error) {
	queues := tx.Bucket([]byte(bucketQueues))
	bucket, err := queues.CreateBucketIfNotExists([]byte(destination))
	if err != nil {
		return 0, err
	}
	events, err := bucket.CreateBucketIfNotExists([]byte(bucketEvents))
	if err != nil {
		return 0, err
	}
	if number, err = queues.NextSequence(); err != nil {
		return 0, err
	}
	events.FillPercent = 1 // keys only grow
	return number, events.Put(binary.BigEndian.AppendUint64(nil, number), value)
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

// create creates the file if it does not exist. The file is durable before the first event is written.
func (s *Store) create() error {
	if s.file != nil {
		return nil
	}
	err := boltfile.Prepare(s.path, boltfile.Options{}, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			queues, err := tx.CreateBucketIfNotExists([]byte(bucketQueues))
			if err != nil {
				return err
			}
			return queues.Put([]byte(keyFormat), []byte(format))
		})
	})
	if err == nil {
		s.file, err = boltfile.Install(s.path, boltfile.Options{})
	}
	return boltfile.Explain("create the file of parked events", s.path, err)
}

// removeFile closes and removes the file, to free disk space when no events are parked.
func (s *Store) removeFile() error {
	err := s.file.Close()
	s.file = nil
	return errors.Join(err, os.Remove(s.path))
}

// Read returns the queues of a sink without changing the file. No process may have the file open for writing.
func Read(dir, sink string) ([]Queue, error) {
	path := filepath.Join(dir, prefix+sink+suffix)
	s := &Store{queues: map[string]*Queue{}}
	file, err := boltfile.Open(path, boltfile.Options{ReadOnly: true})
	if err == nil {
		err = errors.Join(s.load(file), file.Close())
	}
	if err != nil {
		return nil, boltfile.Explain("read the parked events", path, err)
	}
	return s.Queues(), nil
}
