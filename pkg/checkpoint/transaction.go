package checkpoint

import (
	"fmt"
	"reflect"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// Log receives all changes before they are written to the file, so that other processes can make the same changes to
// their copies.
type Log interface {
	// Sync is called before a transaction, while no transaction runs. It brings Store.Copy up to date if the log has
	// changes that the file does not have, because the file could not be written or Append has failed.
	Sync() error
	// Append appends the changes of a transaction, in their order. It returns the point that the file has with them. If
	// Unsent of the point is set, the log has not accepted the changes: the file is ahead of the log from then on (see
	// Store.Unsent). If Append fails, the transaction is rolled back and returns the error. It must not change Store.Copy.
	Append(pairs []statelog.Pair) (statelog.Point, error)
}

// transaction is a write transaction. All changes to the content go through set. It also contains the new
// version of the store record.
type transaction struct {
	*bbolt.Tx
	store  *Store
	log    Log             // nil if nothing is logged
	pairs  []statelog.Pair // changes for the log
	codec  rowCodec
	record storeRecord
	key    []byte // reused by set

	table struct { // the result of the last call of bucket
		*bbolt.Bucket
		name, source string
	}
}

func (s *Store) transaction(log Log) *transaction {
	return &transaction{store: s, log: log, codec: rowCodec{privacy: s.opts.Privacy}, record: s.record.clone()}
}

// lock acquires s.writing, and brings the file up to date with the log. If it fails, s.writing is not held.
func (s *Store) lock() error {
	s.writing.Lock()
	if s.opts.Log == nil {
		return nil
	}
	err := s.opts.Log.Sync()
	if err != nil {
		s.mu.Lock()
		s.stats.Errors++
		s.mu.Unlock()
		s.writing.Unlock()
	}
	return err
}

// write runs a transaction, and passes its changes to the log. The caller must hold s.writing.
func (s *Store) write(change func(*transaction) error) error {
	return s.update(s.opts.Log, func(t *transaction) error {
		if err := change(t); err != nil {
			return err
		}
		if !reflect.DeepEqual(t.record, s.record) {
			if err := t.putJSON(bucketStore, keyStore, t.record); err != nil {
				return err
			}
		}
		return t.finish()
	})
}

// update runs a transaction. The caller must hold s.writing.
func (s *Store) update(log Log, change func(*transaction) error) error {
	t := s.transaction(log)
	err := s.file.Update(func(tx *bbolt.Tx) error {
		t.Tx = tx
		return change(t)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.Errors++
		return boltfile.Explain("write the checkpoint", s.path, err)
	}
	s.stats.Commits++
	s.stats.LastCommit = time.Now()
	s.record = t.record
	return nil
}

// finish passes the changes of the transaction to the log, and stores the new point. Without a log, it removes the
// point, because the file is then no longer a copy of a log.
func (t *transaction) finish() (err error) {
	switch {
	case t.log == nil:
		t.record.Point = statelog.Point{}
	case len(t.pairs) > 0:
		if t.record.Point, err = t.log.Append(t.pairs); err == nil && t.record.Point.Unsent != "" {
			err = t.mark(t.pairs)
		}
		if err != nil {
			return err
		}
	}
	if t.record.Point == t.store.record.Point {
		return nil
	}
	return t.putPoint()
}

func (t *transaction) putPoint() error {
	bucket := t.Bucket([]byte(bucketStore))
	if t.record.Point == (statelog.Point{}) {
		return bucket.Delete([]byte(keyPoint))
	}
	value, err := sealJSON(keyPoint, t.record.Point)
	if err != nil {
		return err
	}
	return bucket.Put([]byte(keyPoint), value)
}

// putJSON writes a record.
func (t *transaction) putJSON(bucket, key string, record any) error {
	value, err := sealJSON(key, record)
	if err != nil {
		return err
	}
	return t.set(statelog.Pair{Bucket: bucket, Key: key, Value: value})
}

// set puts or removes a value, or all values of a source in a bucket.
func (t *transaction) set(p statelog.Pair) error {
	if t.log != nil {
		t.pairs = append(t.pairs, p)
	}
	if p.Key == "" && p.Value == nil {
		t.table.Bucket = nil
		from := t.Bucket([]byte(p.Bucket))
		if from == nil || from.Bucket([]byte(p.Source)) == nil {
			return nil
		}
		return from.DeleteBucket([]byte(p.Source))
	}
	to, err := t.bucket(p.Bucket, p.Source)
	if err != nil {
		return err
	}
	if t.key = append(t.key[:0], p.Key...); p.Value == nil {
		return to.Delete(t.key)
	}
	return to.Put(t.key, p.Value) // Put copies the key, but not the value
}

// fillPercent is the fill level of the pages that bbolt splits. Rows are written in key order, and most of them are
// later replaced by rows of about the same size. Free space between rows would therefore be of little use.
const fillPercent = 0.9

// bucket returns a bucket of the file, or the bucket of a source in it, which it creates if necessary.
func (t *transaction) bucket(name, source string) (*bbolt.Bucket, error) {
	if last := &t.table; last.Bucket != nil && last.name == name && last.source == source {
		return last.Bucket, nil
	}
	b := t.Bucket([]byte(name))
	if b == nil {
		var err error
		if b, err = t.CreateBucket([]byte(name)); err != nil {
			return nil, err
		}
	}
	if source != "" {
		var err error
		if b, err = b.CreateBucketIfNotExists([]byte(source)); err != nil {
			return nil, fmt.Errorf("source %q: %w", source, err)
		}
		b.FillPercent = fillPercent
	}
	t.table.Bucket, t.table.name, t.table.source = b, name, source
	return b, nil
}
