package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fillPercent is how full bbolt makes the pages that it splits. Rows are put in the order of their keys, and most are
// replaced by others of about their size: there is little to be gained from room in between.
const fillPercent = 0.9

// Commit writes updates, in their order, and the configuration of each sink, in one transaction that is on the disk
// when Commit returns. Sinks that are not in sinkConfigs are removed, their watermarks too; nil leaves all as they are. Where
// the configuration of a sink changes, each source that has no update notes the old one (State.Refilters).
//
// If it fails, the file is what it was, or (only if the disk failed at the very end) what it was to become, never a
// part of both; the store can be used as before. Call it again with the same updates, or with ones that contain them.
//
// An object without a name has no row.
func (s *Store) Commit(updates []ledger.Update, sinkConfigs map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return ErrClosed
	}
	if s.record.ClusterUID == "" {
		return ErrNoCluster
	}
	record := s.record.with(updates, sinkConfigs)
	changed := !record.equal(s.record)
	if len(updates) == 0 && !changed {
		s.count(func(stats *Stats) {
			if stats.LastError == "" {
				stats.LastCommit = time.Now()
			}
		})
		return nil
	}
	w := writer{store: s, rows: map[string]int{}}
	err := s.update(func(tx *bbolt.Tx) error {
		if changed {
			if err := putRecord(tx, record); err != nil {
				return err
			}
			if err := s.keepSinks(tx, record.Sinks); err != nil {
				return err
			}
		}
		for i := range updates {
			if err := w.apply(tx, &updates[i]); err != nil {
				return fmt.Errorf("source %q: %w", updates[i].Source.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return explain("write the checkpoint", s.path, err)
	}
	s.record = record
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	for name, n := range w.rows {
		s.rows[name] = n
		delete(s.damaged, name)
	}
	return nil
}

// Forget removes a source that is watched no more, with its rows. One that is not there is no error.
func (s *Store) Forget(source string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return ErrClosed
	}
	if !s.record.knows(source) {
		return nil
	}
	record := s.record
	record.Sources = slices.DeleteFunc(slices.Clone(record.Sources), func(name string) bool { return name == source })
	err := s.update(func(tx *bbolt.Tx) error {
		if err := tx.Bucket([]byte(bucketSources)).Delete([]byte(source)); err != nil {
			return err
		}
		if err := deleteBucket(tx.Bucket([]byte(bucketRows)), source); err != nil {
			return err
		}
		return putRecord(tx, record)
	})
	if err != nil {
		return explain("write the checkpoint", s.path, err)
	}
	s.record = record
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	delete(s.rows, source)
	delete(s.damaged, source)
	return nil
}

// with is the record after a commit.
func (r storeRecord) with(updates []ledger.Update, sinkConfigs map[string]string) storeRecord {
	if sinkConfigs != nil {
		r.Sinks = maps.Clone(sinkConfigs)
		r.Destinations = maps.Clone(r.Destinations)
		maps.DeleteFunc(r.Destinations, func(sink, _ string) bool { _, ok := sinkConfigs[sink]; return !ok })
	}
	r.Sources = slices.Clone(r.Sources)
	for _, u := range updates {
		if at, found := slices.BinarySearch(r.Sources, u.Source.Name); !found {
			r.Sources = slices.Insert(r.Sources, at, u.Source.Name)
		}
	}
	return r
}

func (r storeRecord) equal(o storeRecord) bool {
	return r.ClusterName == o.ClusterName && r.ClusterUID == o.ClusterUID &&
		r.Privacy == o.Privacy && maps.Equal(r.Sinks, o.Sinks) &&
		maps.Equal(r.Destinations, o.Destinations) && slices.Equal(r.Sources, o.Sources) &&
		r.Watch == o.Watch && r.WatchChange == o.WatchChange
}

// keepSinks removes what is known of the sinks that are not in keep: one that comes back later is a new one. For those whose
// configuration changes it notes the old one in each source.
func (s *Store) keepSinks(tx *bbolt.Tx, keep map[string]string) error {
	for _, name := range s.record.Sources {
		if s.isDamaged(name) {
			continue
		}
		r, err := getSource(tx, name)
		if err != nil {
			return err
		}
		before := len(r.Sinks) + len(r.Refilters)
		maps.DeleteFunc(r.Sinks, func(sink, _ string) bool { _, ok := keep[sink]; return !ok })
		maps.DeleteFunc(r.Refilters, func(sink string, _ ledger.Refilter) bool { _, ok := keep[sink]; return !ok })
		changed := len(r.Sinks)+len(r.Refilters) != before
		for sink, config := range keep {
			if old, known := s.record.Sinks[sink]; known && old != config {
				r.refilter(sink, old)
				changed = true
			}
		}
		if !changed {
			continue
		}
		if err := putSource(tx, name, r); err != nil {
			return err
		}
	}
	return nil
}

// refilter notes that a sink may know the source by an old configuration.
func (r *sourceRecord) refilter(sink, old string) {
	if r.Refilters == nil {
		r.Refilters = map[string]ledger.Refilter{}
	}
	noted := r.Refilters[sink]
	if !slices.Contains(noted.Filters, old) {
		noted.Filters = append(noted.Filters, old)
	}
	noted.Change = newChange()
	r.Refilters[sink] = noted
}

// newChange makes the name of a change of the configuration. No other change has the same.
func newChange() string { return strconv.FormatInt(time.Now().UnixMilli(), 36) }

// SetWatch notes what is watched, and returns the name of its last change: of this one if it was something else, and empty if it
// never changed. It is on the disk when SetWatch returns.
func (s *Store) SetWatch(watch string) (change string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return "", ErrClosed
	}
	if s.record.Watch == watch {
		return s.record.WatchChange, nil
	}
	record := s.record
	record.Watch = watch
	if s.record.Watch != "" {
		record.WatchChange = newChange()
	}
	if err := s.update(func(tx *bbolt.Tx) error { return putRecord(tx, record) }); err != nil {
		return "", explain("write the checkpoint", s.path, err)
	}
	s.record = record
	return record.WatchChange, nil
}

// writer applies the updates of one transaction.
type writer struct {
	store *Store
	codec rowCodec
	rows  map[string]int // by source, what Stats is to say
}

func (w *writer) apply(tx *bbolt.Tx, u *ledger.Update) error {
	name := u.Source.Name
	if name == "" {
		return errors.New("empty name")
	}
	_, again := w.rows[name] // of two updates of a source the second builds on the first
	known := again || w.store.record.knows(name) && !w.store.isDamaged(name)
	var r sourceRecord
	if known {
		var err error
		if r, err = getSource(tx, name); err != nil {
			return err
		}
	}
	all := tx.Bucket([]byte(bucketRows))
	if !known {
		if err := deleteBucket(all, name); err != nil {
			return err
		}
		r.Rows = tally{}
	}
	bucket, err := all.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}
	bucket.FillPercent = fillPercent
	for _, key := range u.Deletes {
		if old := bucket.Get([]byte(key)); old != nil {
			r.Rows.remove(old)
			if err := bucket.Delete([]byte(key)); err != nil {
				return err
			}
		}
	}
	if err := w.upsert(bucket, u.Source.Resource, u.Upserts, &r.Rows); err != nil {
		return err
	}
	w.store.resident.Used(w.store.db, tx, int64(len(u.Upserts)+len(u.Deletes))*pageSize)
	r.set(u)
	w.rows[name] = r.Rows.Count
	return putSource(tx, name, r)
}

// keyed is an object with its key.
type keyed struct {
	key    string
	object *object.Object
}

// upsert puts rows in the order of their keys, which is how bbolt's pages are.
func (w *writer) upsert(bucket *bbolt.Bucket, resource schema.GroupVersionResource, objects []*object.Object, rows *tally) error {
	w.codec.privacy, w.codec.resource = w.store.opts.Privacy, resource
	sorted := make([]keyed, 0, len(objects))
	for _, o := range objects {
		if key := o.Key(); key != "" {
			sorted = append(sorted, keyed{key, o})
		}
	}
	slices.SortStableFunc(sorted, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	for _, k := range sorted {
		key, row := []byte(k.key), w.codec.encode(k.key, k.object)
		old := bucket.Get(key)
		if old != nil {
			if bytes.Equal(old, row) {
				continue
			}
			rows.remove(old)
		}
		if err := bucket.Put(key, row); err != nil {
			return fmt.Errorf("row %q: %w", k.key, err)
		}
		rows.add(row)
	}
	return nil
}

// deleteBucket removes a bucket in another, if it is there.
func deleteBucket(from *bbolt.Bucket, name string) error {
	if from.Bucket([]byte(name)) == nil {
		return nil
	}
	return from.DeleteBucket([]byte(name))
}

func putSource(tx *bbolt.Tx, name string, r sourceRecord) error {
	value, err := sealJSON(name, r)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucketSources)).Put([]byte(name), value)
}
