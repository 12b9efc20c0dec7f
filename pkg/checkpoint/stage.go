package checkpoint

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// bucketStaged holds, as bucketRows does, the rows of first lists that are not complete. What is found in it when the
// file is opened was left by a process that ended in the middle of a list.
const bucketStaged = "staged"

// stageBytes is how much of a list is held in memory before it is written.
const stageBytes = 4 << 20

// errSuperseded is returned to a stage after another one was begun for its source.
var errSuperseded = errors.New("checkpoint: the list was begun again")

// Stage takes the rows of a source's first list while it is being read, so that a list of any length takes little memory.
// Nothing of it counts before Finish. It is for one goroutine, but may be used beside all else.
type Stage struct {
	store    *Store
	name     string
	resource schema.GroupVersionResource
	batch    []*object.Object
	bytes    int
	rows     tally // that were written
	begun    bool  // something was written
}

// Stage begins a list of a source. One that was begun before, and not finished, is void.
func (s *Store) Stage(source Source) *Stage {
	st := &Stage{store: s, name: source.Name, resource: source.Resource}
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	s.stages[source.Name] = st
	return st
}

// Put takes an object, which must not change afterwards. It may write, and then waits for the disk. After an error the
// stage is of no use.
func (st *Stage) Put(o *object.Object) error {
	copied := *o // the caller may release its bytes
	st.batch = append(st.batch, &copied)
	st.bytes += len(o.Raw)
	if st.bytes < stageBytes {
		return nil
	}
	return st.write(nil, nil)
}

// Remove drops an object that was put.
func (st *Stage) Remove(o *object.Object) error {
	return st.write(func(tx *bbolt.Tx) error {
		rows := tx.Bucket([]byte(bucketStaged)).Bucket([]byte(st.name))
		key := []byte(Key(o))
		if old := rows.Get(key); old != nil {
			st.rows.remove(old)
			return rows.Delete(key)
		}
		return nil
	}, nil)
}

// Finish makes what was staged the source's rows, in one transaction with its record and the configuration of the sinks,
// as Commit does with an Update that has Reset set. After an error it can be called again.
func (st *Stage) Finish(u Update, sinkConfigs map[string]string) error {
	s := st.store
	if !st.begun {
		if !s.stagesNow(st) {
			return errSuperseded
		}
		u.Reset, u.Upserts = true, st.batch
		return s.Commit([]Update{u}, sinkConfigs)
	}
	// A bucket that was changed can't be moved in the same transaction: bbolt moves what is in the file.
	if err := st.write(nil, nil); err != nil {
		return err
	}
	var record storeRecord
	return st.write(func(tx *bbolt.Tx) error {
		record = s.record.with([]Update{u}, sinkConfigs)
		if !record.equal(s.record) {
			if err := putRecord(tx, record); err != nil {
				return err
			}
			if err := s.keepSinks(tx, record.Sinks); err != nil {
				return err
			}
		}
		rows := tx.Bucket([]byte(bucketRows))
		if err := deleteBucket(rows, st.name); err != nil {
			return err
		}
		if err := tx.MoveBucket([]byte(st.name), tx.Bucket([]byte(bucketStaged)), rows); err != nil {
			return err
		}
		r := sourceRecord{Rows: st.rows}
		r.set(&u)
		return putSource(tx, st.name, r)
	}, func() {
		s.record = record
		s.statsMu.Lock()
		defer s.statsMu.Unlock()
		s.rows[st.name] = st.rows.Count
		delete(s.damaged, st.name)
		delete(s.stages, st.name)
	})
}

// write writes what is held, and does whatever else is to be done in the same transaction, and done when that is on the
// disk; both may be nil.
func (st *Stage) write(also func(*bbolt.Tx) error, done func()) error {
	s := st.store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.db == nil:
		return ErrClosed
	case s.record.ClusterUID == "":
		return ErrNoCluster
	case !s.stagesNow(st):
		return errSuperseded
	}
	before := st.rows
	err := s.update(func(tx *bbolt.Tx) error {
		staged, err := tx.CreateBucketIfNotExists([]byte(bucketStaged))
		if err != nil {
			return err
		}
		if !st.begun { // of an earlier stage
			if err := deleteBucket(staged, st.name); err != nil {
				return err
			}
		}
		rows, err := staged.CreateBucketIfNotExists([]byte(st.name))
		if err != nil {
			return err
		}
		rows.FillPercent = fillPercent
		w := writer{store: s}
		if err := w.upsert(rows, st.resource, st.batch, &st.rows); err != nil {
			return err
		}
		s.resident.Used(s.db, tx, int64(st.bytes))
		if also == nil {
			return nil
		}
		return also(tx)
	})
	if err != nil {
		st.rows = before
		return explain("write the checkpoint", s.path, fmt.Errorf("source %q: %w", st.name, err))
	}
	clear(st.batch)
	st.batch, st.bytes, st.begun = st.batch[:0], 0, true
	if done != nil {
		done()
	}
	return nil
}

func (s *Store) stagesNow(st *Stage) bool {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	return s.stages[st.name] == st
}

// dropStaged removes what an earlier process left of lists that it did not complete.
func (s *Store) dropStaged() error {
	left := false
	err := s.view(func(tx *bbolt.Tx) error {
		left = tx.Bucket([]byte(bucketStaged)) != nil
		return nil
	})
	if err != nil || !left {
		return err
	}
	return s.update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketStaged)) })
}
