package parked

import (
	"bytes"
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

	// bucketEvents contains all events. An event's key is its destination, a zero byte and its number. Its value is a
	// checksum followed by the stored event.
	bucketEvents = "events"
	numberBytes  = 8
	sumBytes     = 4

	// bucketEarlier is a bucket that only files of earlier versions contain.
	bucketEarlier = "queues"
)

var errEarlier = errors.New(
	"the file has the format of an earlier version: run that version until the file's events are " +
		"delivered, or remove the file, which loses them",
)

// load reads and counts all events in the file.
func (s *Store) load(file *boltfile.File) error {
	return file.View(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketEarlier)) != nil {
			return errEarlier
		}
		events := tx.Bucket([]byte(bucketEvents))
		if events == nil {
			return fmt.Errorf("%w: not a file of parked events", boltfile.ErrDamaged)
		}
		return events.ForEach(func(key, value []byte) error {
			end := len(key) - 1 - numberBytes
			if end < 0 || key[end] != 0 {
				return fmt.Errorf("%w: unknown key %q", boltfile.ErrDamaged, key)
			}
			m, _ := parse(value) // if the event is damaged, Head skips it later
			s.count(string(key[:end]), numberOf(key), len(value), m)
			file.Release(tx, int64(len(value)))
			return nil
		})
	})
}

func keyOf(destination string, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte(destination), 0), number)
}

func numberOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-numberBytes:]) }

// isOf reports whether key is the key of an event of the destination.
func isOf(destination string, key []byte) bool {
	return len(key) == len(destination)+1+numberBytes && bytes.HasPrefix(key, append([]byte(destination), 0))
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
			_, err := tx.CreateBucket([]byte(bucketEvents))
			return err
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
	s := &Store{path: filepath.Join(dir, prefix+sink+suffix), queues: map[string]*Queue{}}
	if err := s.open(boltfile.Options{ReadOnly: true}); err != nil {
		return nil, boltfile.Explain("read the parked events", s.path, err)
	}
	return s.Queues(), s.Close()
}

// open opens the file and counts its events.
func (s *Store) open(o boltfile.Options) error {
	file, err := boltfile.Open(s.path, o)
	if err != nil {
		return err
	}
	if err := s.load(file); err != nil {
		return errors.Join(err, file.Close())
	}
	s.file = file
	return nil
}
