package parked

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

const (
	prefix, suffix = "parked-", ".db" // of files' names, around that of the sink
	lockTimeout    = 2 * time.Second  // how long to wait for another process to let go of the file
	format         = "1"
)

// The buckets and keys of the file. The bucket of queues has one for each queue, which has its description under keyQueue and a
// bucket of its events.
const (
	bucketQueues = "queues"
	bucketEvents = "events"
	keyQueue     = "queue"
	keyFormat    = "format"
)

func open(path string, readOnly bool) (*bbolt.DB, error) {
	return bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, NoStatistics: true, ReadOnly: readOnly})
}

// load reads the description of each queue, and the numbers of the events at its ends.
func (s *Store) load(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		queues := tx.Bucket([]byte(bucketQueues))
		if queues == nil || string(queues.Get([]byte(keyFormat))) != format {
			return errors.New("this is no file of parked events, or of another version")
		}
		s.last = queues.Sequence()
		return queues.ForEachBucket(func(name []byte) error {
			q := &Queue{Destination: string(name)}
			bucket := queues.Bucket(name)
			if err := json.Unmarshal(bucket.Get([]byte(keyQueue)), q); err != nil {
				return fmt.Errorf("queue %s: %w", name, err)
			}
			events := bucket.Bucket([]byte(bucketEvents))
			if events == nil {
				return fmt.Errorf("queue %s has no events", name)
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
	if s.db != nil {
		return nil
	}
	db, err := open(s.path, false)
	if err != nil {
		return fmt.Errorf("create the file of parked events: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		queues, err := tx.CreateBucketIfNotExists([]byte(bucketQueues))
		if err != nil {
			return err
		}
		return queues.Put([]byte(keyFormat), []byte(format))
	})
	if err == nil {
		err = syncDir(s.opts.Dir)
	}
	if err != nil {
		_ = db.Close()
		return fmt.Errorf("create the file of parked events: %w", err)
	}
	s.db = db
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// removeFile gives the room on disk back when nothing is parked.
func (s *Store) removeFile() error {
	err := s.db.Close()
	s.db = nil
	return errors.Join(err, os.Remove(s.path))
}

// Read gives the queues of a sink without changing anything. No process may have the file open for writing.
func Read(dir, sink string) ([]Queue, error) {
	path := filepath.Join(dir, prefix+sink+suffix)
	db, err := open(path, true)
	if err != nil {
		return nil, fmt.Errorf("read the parked events %s: %w", path, err)
	}
	defer db.Close()
	s := &Store{queues: map[string]*Queue{}}
	if err := s.load(db); err != nil {
		return nil, fmt.Errorf("read the parked events %s: %w", path, err)
	}
	return s.Queues(), nil
}
