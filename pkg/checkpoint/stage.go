package checkpoint

import (
	"errors"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// bucketStaged holds, as bucketRows does, the rows of first lists that are not complete. What is found in it when the
// file is opened was left by a process that ended in the middle of a list.
const bucketStaged = "staged"

// stageBytes is how much of a list is held in memory before it is written.
const stageBytes = 4 << 20

// errSuperseded is returned to a stage after another one was begun for its source.
var errSuperseded = errors.New("checkpoint: the list was begun again")

// Stage takes the rows of a source's first list while it is being read, so that a list of any length takes little
// memory. Nothing of it counts before Finish. It is for one goroutine, but may be used beside all else.
type Stage struct {
	store    *Store
	name     string
	resource schema.GroupVersionResource
	batch    []*object.Object
	bytes    int
	begun    bool // something was written
}

// Stage begins a list of a source. One that was begun before, and not finished, is void.
func (s *Store) Stage(source ledger.Source) *Stage {
	st := &Stage{store: s, name: source.Name, resource: source.Resource}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stages[source.Name] = st
	return st
}

// dropStage makes the stage of a source, if there is one, void: its list will not be finished.
func (s *Store) dropStage(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stages, source)
}

// Put takes an object, which must not change afterwards. It may write what was put before, and then waits for the disk.
// After an error, which is about that, the object was not taken: call Put again.
func (st *Stage) Put(o *object.Object) error {
	if st.bytes >= stageBytes {
		if err := st.flush(); err != nil {
			return err
		}
	}
	st.batch = append(st.batch, o.WithoutManagedFields())
	st.bytes += len(o.Raw)
	return nil
}

// Remove drops an object that was put. After an error call it again.
func (st *Stage) Remove(o *object.Object) error {
	if err := st.flush(); err != nil {
		return err
	}
	return st.write(func(t *transaction) error {
		return t.Bucket([]byte(bucketStaged)).Bucket([]byte(st.name)).Delete([]byte(o.Key()))
	})
}

// Finish makes what was staged the source's rows, in place of those that it has, in one transaction with its record
// and the configuration of the sinks. After an error call it again.
func (st *Stage) Finish(u ledger.Update, sinkConfigs map[string]string) error {
	// A bucket that was changed can't be moved in the same transaction: bbolt moves what is in the file.
	if err := st.flush(); err != nil {
		return err
	}
	err := st.write(func(t *transaction) error {
		if err := t.setSinks(sinkConfigs); err != nil {
			return err
		}
		return st.move(t, &u)
	})
	if err == nil {
		st.store.dropStage(st.name)
	}
	return err
}

// move puts the staged bucket in its place. It can be repeated, also after a transaction that failed so late that
// what it did is there.
func (st *Stage) move(t *transaction, u *ledger.Update) error {
	all, parent := t.Bucket([]byte(bucketRows)), t.Bucket([]byte(bucketStaged))
	staged := parent.Bucket([]byte(st.name))
	if staged == nil { // it was moved
		r, err := getSource(t.Tx, st.name)
		if err != nil {
			return err
		}
		return t.putSource(st.name, r)
	}
	var r sourceRecord
	err := staged.ForEach(func(_, row []byte) error {
		r.Rows.add(row)
		t.store.release(t.Tx, len(row))
		return nil
	})
	if err != nil {
		return err
	}
	if err := deleteBucket(all, st.name); err != nil {
		return err
	}
	if err := t.MoveBucket([]byte(st.name), parent, all); err != nil {
		return err
	}
	r.set(u)
	return t.putSource(st.name, r)
}

// flush writes what is held. To do so twice is to do it once.
func (st *Stage) flush() error {
	if st.begun && len(st.batch) == 0 {
		return nil
	}
	err := st.write(func(t *transaction) error {
		all := t.Bucket([]byte(bucketStaged))
		if !st.begun { // of an earlier stage
			if err := deleteBucket(all, st.name); err != nil {
				return err
			}
		}
		rows, err := createRows(all, st.name)
		if err != nil {
			return err
		}
		t.store.release(t.Tx, st.bytes)
		return t.codec.put(rows, st.resource, st.batch, &tally{}) // they are counted when they are moved
	})
	if err != nil {
		return err
	}
	st.batch, st.bytes, st.begun = nil, 0, true
	return nil
}

// write makes one transaction, if no other stage of the source was begun.
func (st *Stage) write(change func(*transaction) error) error {
	s := st.store
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	isCurrent := s.stages[st.name] == st
	s.mu.Unlock()
	switch {
	case s.record.ClusterUID == "":
		return errNoCluster
	case !isCurrent:
		return errSuperseded
	}
	return s.write(func(t *transaction) error {
		if _, err := t.CreateBucketIfNotExists([]byte(bucketStaged)); err != nil {
			return err
		}
		return change(t)
	})
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
	return s.write(func(t *transaction) error { return t.DeleteBucket([]byte(bucketStaged)) })
}
