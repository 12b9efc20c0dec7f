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
	begun    bool // something was written, or may have been
}

// Stage begins a list of a source. One that was begun before, and not finished, is void.
func (s *Store) Stage(source Source) *Stage {
	st := &Stage{store: s, name: source.Name, resource: source.Resource}
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	s.stages[source.Name] = st
	return st
}

// Put takes an object, which must not change afterwards. It may write what was put before, and then waits for the disk.
// After an error, which is about that, the object was not taken: call Put again.
func (st *Stage) Put(o *object.Object) error {
	if st.bytes >= stageBytes {
		if err := st.write(st.rows, st.written); err != nil {
			return err
		}
	}
	st.batch = append(st.batch, o.WithoutManagedFields())
	st.bytes += len(o.Raw)
	return nil
}

// Remove drops an object that was put. After an error call it again.
func (st *Stage) Remove(o *object.Object) error {
	return st.write(func(tx *bbolt.Tx) error {
		if err := st.rows(tx); err != nil {
			return err
		}
		return tx.Bucket([]byte(bucketStaged)).Bucket([]byte(st.name)).Delete([]byte(Key(o)))
	}, st.written)
}

// Finish makes what was staged the source's rows, in one transaction with its record and the configuration of the sinks,
// as Commit does with an Update that has Reset set. After an error call it again.
func (st *Stage) Finish(u Update, sinkConfigs map[string]string) error {
	if !st.begun {
		if !st.store.stagesNow(st) {
			return errSuperseded
		}
		u.Reset, u.Upserts = true, st.batch
		if err := st.store.Commit([]Update{u}, sinkConfigs); err != nil {
			return err
		}
		st.end()
		return nil
	}
	// A bucket that was changed can't be moved in the same transaction: bbolt moves what is in the file.
	if len(st.batch) > 0 {
		if err := st.write(st.rows, st.written); err != nil {
			return err
		}
	}
	return st.move(&u, sinkConfigs)
}

// move puts the staged bucket in its place. It can be repeated, also after a transaction that failed so late that what it
// did is there.
func (st *Stage) move(u *Update, sinkConfigs map[string]string) error {
	s := st.store
	var record storeRecord
	var sum tally
	return st.write(func(tx *bbolt.Tx) error {
		record = s.record.with([]Update{*u}, sinkConfigs)
		if err := putRecord(tx, record); err != nil {
			return err
		}
		if err := s.keepSinks(tx, record.Sinks); err != nil {
			return err
		}
		all, parent := tx.Bucket([]byte(bucketRows)), tx.Bucket([]byte(bucketStaged))
		staged := parent.Bucket([]byte(st.name))
		if staged == nil { // it was moved
			r, err := getSource(tx, st.name)
			sum = r.Rows
			return err
		}
		sum = tally{}
		err := staged.ForEach(func(_, row []byte) error {
			sum.add(row)
			s.resident.Used(s.db, tx, int64(len(row)))
			return nil
		})
		if err != nil {
			return err
		}
		if err := deleteBucket(all, st.name); err != nil {
			return err
		}
		if err := tx.MoveBucket([]byte(st.name), parent, all); err != nil {
			return err
		}
		r := sourceRecord{Rows: sum}
		r.set(u)
		return putSource(tx, st.name, r)
	}, func() {
		s.record = record
		s.statsMu.Lock()
		s.rows[st.name] = sum.Count
		delete(s.damaged, st.name)
		s.statsMu.Unlock()
		st.end()
	})
}

// written lets go of what is in the file.
func (st *Stage) written() {
	clear(st.batch)
	st.batch, st.bytes = st.batch[:0], 0
}

// end lets go of what the stage holds.
func (st *Stage) end() {
	st.batch, st.bytes = nil, 0
	st.store.DropStage(st.name)
}

// DropStage makes the stage of a source, if there is one, void: its list will not be finished.
func (s *Store) DropStage(source string) {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	delete(s.stages, source)
}

// rows puts what is held into the staged bucket. To do so twice is to do it once.
func (st *Stage) rows(tx *bbolt.Tx) error {
	rows, err := tx.Bucket([]byte(bucketStaged)).CreateBucketIfNotExists([]byte(st.name))
	if err != nil {
		return err
	}
	rows.FillPercent = fillPercent
	w := writer{store: st.store}
	st.store.resident.Used(st.store.db, tx, int64(st.bytes))
	return w.upsert(rows, st.resource, st.batch, &tally{}) // they are counted when they are moved
}

// write makes one transaction, and calls done, before anything else can be written, when it is on the disk.
func (st *Stage) write(change func(*bbolt.Tx) error, done func()) error {
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
		return change(tx)
	})
	if err != nil {
		return explain("write the checkpoint", s.path, fmt.Errorf("source %q: %w", st.name, err))
	}
	st.begun = true
	done()
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
