package checkpoint

import (
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
)

// fillPercent is how full bbolt makes the pages that it splits. Rows are put in the order of their keys, and most are
// replaced by others of about their size: there is little to be gained from room in between.
const fillPercent = 0.9

// Commit writes updates, in their order, and the configuration of each sink, in one transaction that is on the disk
// when Commit returns. Sinks that are not in sinkConfigs are removed, and their watermarks too; nil leaves all as they
// are. If the configuration of a sink changes, each source that has no update notes the old one (State.Refilters).
//
// If it fails, the file is what it was, or (only if the disk failed at the very end) what it was to become, never a
// mixture; the store can be used as before. Call it again with the same updates, or with updates that contain them.
//
// A source whose ResourceVersion is empty has a first list that is not complete: Load ignores it, and Open removes it.
// An object without a name has no row. BeginCluster comes before the first Commit.
func (s *Store) Commit(updates []ledger.Update, sinkConfigs map[string]string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.write(func(t *transaction) error {
		if err := t.setSinks(sinkConfigs); err != nil {
			return err
		}
		for i := range updates {
			if err := t.apply(&updates[i]); err != nil {
				return fmt.Errorf("source %q: %w", updates[i].Source.Name, err)
			}
		}
		return nil
	})
}

// Forget removes a source that is no longer watched, with its rows. A source that is not there is no error.
func (s *Store) Forget(source string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.record.knows(source) {
		return nil
	}
	return s.write(func(t *transaction) error { return t.forget(source) })
}

func (t *transaction) forget(source string) error {
	t.record.Sources = slices.DeleteFunc(t.record.Sources, func(name string) bool { return name == source })
	if err := t.Bucket([]byte(bucketSources)).Delete([]byte(source)); err != nil {
		return err
	}
	return deleteBucket(t.Bucket([]byte(bucketRows)), source)
}

// setSinks notes the configuration of all sinks, and removes what is known of other sinks, here and in each source: a
// sink that comes back later is a new one. If the configuration of a sink changes, each source notes the old one. nil
// changes nothing.
func (t *transaction) setSinks(configs map[string]string) error {
	before := t.record.Sinks
	if configs == nil || maps.Equal(before, configs) {
		return nil
	}
	t.record.Sinks = maps.Clone(configs)
	removed := func(sink string) bool { _, ok := configs[sink]; return !ok }
	maps.DeleteFunc(t.record.Destinations, func(sink, _ string) bool { return removed(sink) })
	for _, name := range t.record.Sources {
		r, err := getSource(t.Tx, name)
		if err != nil {
			return err
		}
		maps.DeleteFunc(r.Sinks, func(sink, _ string) bool { return removed(sink) })
		maps.DeleteFunc(r.Refilters, func(sink string, _ ledger.Refilter) bool { return removed(sink) })
		for sink, config := range configs {
			if old, ok := before[sink]; ok && old != config {
				r.refilter(sink, old)
			}
		}
		if err := t.putSource(name, r); err != nil {
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

// newChange returns a name for a change of the configuration. No other change has the same name.
func newChange() string { return strconv.FormatInt(time.Now().UnixMilli(), 36) }

// SetWatch notes what is watched, and returns the name of its last change: of this one if it was something else, and
// empty if it never changed. It is on the disk when SetWatch returns.
func (s *Store) SetWatch(watch string) (change string, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.record.Watch == watch {
		return s.record.WatchChange, nil
	}
	err = s.write(func(t *transaction) error {
		if t.record.Watch != "" {
			t.record.WatchChange = newChange()
		}
		t.record.Watch, change = watch, t.record.WatchChange
		return nil
	})
	return change, err
}

// SetDestination notes which destination has what was settled for a sink. It is on the disk when SetDestination
// returns.
func (s *Store) SetDestination(sink, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.record.Destinations[sink] == name {
		return nil
	}
	return s.write(func(t *transaction) error {
		if t.record.Destinations == nil {
			t.record.Destinations = map[string]string{}
		}
		t.record.Destinations[sink] = name
		return nil
	})
}

// apply writes an update.
func (t *transaction) apply(u *ledger.Update) (err error) {
	name, all := u.Source.Name, t.Bucket([]byte(bucketRows))
	if name == "" {
		return errors.New("empty name")
	}
	var r sourceRecord
	if t.record.knows(name) && !u.ReplaceRows {
		r, err = getSource(t.Tx, name)
	} else {
		err = deleteBucket(all, name)
	}
	if err != nil {
		return err
	}
	rows, err := all.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}
	rows.FillPercent = fillPercent
	for _, key := range u.Deletes {
		if old := rows.Get([]byte(key)); old != nil {
			r.Rows.remove(old)
			if err := rows.Delete([]byte(key)); err != nil {
				return err
			}
		}
	}
	t.codec.resource = u.Source.Resource
	if err := t.codec.put(rows, u.Upserts, &r.Rows); err != nil {
		return err
	}
	t.store.release(t.Tx, (len(u.Upserts)+len(u.Deletes))*pageSize)
	r.set(&u.State)
	return t.putSource(name, r)
}

// pageSize is about how many bytes of the file are read and written for a row.
const pageSize = 4 << 10

// putSource puts the record of a source.
func (t *transaction) putSource(name string, r sourceRecord) error {
	if at, found := slices.BinarySearch(t.record.Sources, name); !found {
		t.record.Sources = slices.Insert(t.record.Sources, at, name)
	}
	return putJSON(t.Tx, bucketSources, name, r)
}

// put puts rows in the order of their keys, which is the order of bbolt's pages. Of two objects with one key the later
// one counts.
func (c *rowCodec) put(to *bbolt.Bucket, objects []*object.Object, rows *tally) error {
	type keyed struct {
		key    string
		object *object.Object
	}
	sorted := make([]keyed, 0, len(objects))
	for _, o := range objects {
		if key := o.Key(); key != "" {
			sorted = append(sorted, keyed{key, o})
		}
	}
	slices.SortStableFunc(sorted, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	for _, k := range sorted {
		key, row := []byte(k.key), c.encode(k.key, k.object)
		if old := to.Get(key); old != nil {
			rows.remove(old)
		}
		if err := to.Put(key, row); err != nil {
			return fmt.Errorf("row %q: %w", k.key, err)
		}
		rows.add(row)
	}
	return nil
}

// deleteBucket removes a bucket in another one, if it is there.
func deleteBucket(from *bbolt.Bucket, name string) error {
	if from.Bucket([]byte(name)) == nil {
		return nil
	}
	return from.DeleteBucket([]byte(name))
}
