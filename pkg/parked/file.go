package parked

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
)

const (
	prefix, suffix = "parked-", ".db" // of files' names, around that of the sink
	format         = "1"
)

// The buckets and keys of the file. The bucket of queues has one for each queue, which has its description under
// keyQueue and a bucket of its events.
const (
	bucketQueues = "queues"
	bucketEvents = "events"
	keyQueue     = "queue"
	keyFormat    = "format"
)

// load reads the description of each queue, and the numbers of the events at its ends.
func (s *Store) load(file *boltfile.File) error {
	return file.View(func(tx *bbolt.Tx) error {
		queues := tx.Bucket([]byte(bucketQueues))
		if queues == nil || string(queues.Get([]byte(keyFormat))) != format {
			return fmt.Errorf("%w: this is no file of parked events, or of another version", boltfile.ErrDamaged)
		}
		s.last = queues.Sequence()
		return queues.ForEachBucket(func(name []byte) error {
			q := &Queue{Destination: string(name)}
			bucket := queues.Bucket(name)
			if err := json.Unmarshal(bucket.Get([]byte(keyQueue)), q); err != nil {
				return fmt.Errorf("%w: queue %s: %w", boltfile.ErrDamaged, name, err)
			}
			events := bucket.Bucket([]byte(bucketEvents))
			if events == nil {
				return fmt.Errorf("%w: queue %s has no events", boltfile.ErrDamaged, name)
			}
			if first, _ := events.Cursor().First(); len(first) == 8 {
				q.First = binary.BigEndian.Uint64(first)
				s.queues[q.Destination] = q
			}
			return nil
		})
	})
}

// create makes the file, if there is none, durable before anything is in it.
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

// removeFile gives the room on disk back when nothing is parked.
func (s *Store) removeFile() error {
	err := s.file.Close()
	s.file = nil
	return errors.Join(err, os.Remove(s.path))
}

// Read gives the queues of a sink without changing anything. No process may have the file open for writing.
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
