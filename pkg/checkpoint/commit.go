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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// fillPercent is how full bbolt makes the pages that it splits. Rows are put in the order of their keys, and most are
// replaced by others of about their size: there is little to be gained from room in between.
const fillPercent = 0.9

// Commit writes updates, in their order, and the configuration of each sink, in one transaction that is on the disk
// when Commit returns. Sinks that are not in sinkConfigs are removed, their watermarks too; nil leaves all as they
// are. Where the configuration of a sink changes, each source that has no update notes the old one (State.Refilters).
//
// If it fails, the file is what it was, or (only if the disk failed at the very end) what it was to become, never a
// part of both; the store can be used as before. Call it again with the same updates, or with ones that contain them.
//
// An object without a name has no row.
func (s *Store) Commit(updates []ledger.Update, sinkConfigs map[string]string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.record.ClusterUID == "" {
		return errNoCluster
	}
	if record := s.record.clone(); len(updates) == 0 {
		if record.setSinks(sinkConfigs); record.equal(s.record) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.stats.LastError == "" {
				s.stats.LastCommit = time.Now()
			}
			return nil
		}
	}
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

// Forget removes a source that is watched no more, with its rows and its stage. One that is not there is no error.
func (s *Store) Forget(source string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.record.knows(source) {
		err := s.write(func(t *transaction) error {
			t.record.Sources = slices.DeleteFunc(t.record.Sources, func(name string) bool { return name == source })
			t.rows[source] = -1
			if err := t.Bucket([]byte(bucketSources)).Delete([]byte(source)); err != nil {
				return err
			}
			return deleteBucket(t.Bucket([]byte(bucketRows)), source)
		})
		if err != nil {
			return err
		}
	}
	s.dropStage(source)
	return nil
}

// setSinks notes the configuration of all sinks, and removes the destinations of others; nil: it stays as it is.
func (r *storeRecord) setSinks(configs map[string]string) {
	if configs != nil {
		r.Sinks = maps.Clone(configs)
		maps.DeleteFunc(r.Destinations, func(sink, _ string) bool { _, ok := configs[sink]; return !ok })
	}
}

// setSinks does the same, and removes what is known of other sinks in each source: one that comes back later is a new
// one. For those whose configuration changes it notes the old one in each source.
func (t *transaction) setSinks(configs map[string]string) error {
	before := t.record.Sinks
	t.record.setSinks(configs)
	if maps.Equal(before, t.record.Sinks) {
		return nil
	}
	for _, name := range t.record.Sources {
		if t.store.isDamaged(name) {
			continue
		}
		r, err := getSource(t.Tx, name)
		if err != nil {
			t.store.giveUp(name, err)
			continue
		}
		known := len(r.Sinks) + len(r.Refilters)
		maps.DeleteFunc(r.Sinks, func(sink, _ string) bool { _, ok := configs[sink]; return !ok })
		maps.DeleteFunc(r.Refilters, func(sink string, _ ledger.Refilter) bool { _, ok := configs[sink]; return !ok })
		changed := len(r.Sinks)+len(r.Refilters) != known
		for sink, config := range configs {
			if old, ok := before[sink]; ok && old != config {
				r.refilter(sink, old)
				changed = true
			}
		}
		if !changed {
			continue
		}
		if err := putSource(t.Tx, name, r); err != nil {
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

// apply makes an update.
func (t *transaction) apply(u *ledger.Update) error {
	r, bucket, err := t.open(u.Source.Name)
	if err != nil {
		return err
	}
	for _, key := range u.Deletes {
		if old := bucket.Get([]byte(key)); old != nil {
			r.Rows.remove(old)
			if err := bucket.Delete([]byte(key)); err != nil {
				return err
			}
		}
	}
	if err := t.codec.put(bucket, u.Source.Resource, u.Upserts, &r.Rows); err != nil {
		return err
	}
	t.store.release(t.Tx, (len(u.Upserts)+len(u.Deletes))*pageSize)
	r.set(u)
	return t.putSource(u.Source.Name, r)
}

// pageSize is about how many bytes of the file are read and written for a row.
const pageSize = 4 << 10

// open returns the record and the rows of a source. One that is new or damaged begins without any.
func (t *transaction) open(name string) (r sourceRecord, rows *bbolt.Bucket, err error) {
	if name == "" {
		return r, nil, errors.New("empty name")
	}
	_, again := t.rows[name] // what it was given in this transaction is sound
	all := t.Bucket([]byte(bucketRows))
	if t.record.knows(name) && (again || !t.store.isDamaged(name)) {
		r, err = getSource(t.Tx, name)
	} else {
		err = deleteBucket(all, name)
	}
	if err != nil {
		return r, nil, err
	}
	rows, err = createRows(all, name)
	return r, rows, err
}

// putSource notes the record of a source.
func (t *transaction) putSource(name string, r sourceRecord) error {
	if at, found := slices.BinarySearch(t.record.Sources, name); !found {
		t.record.Sources = slices.Insert(t.record.Sources, at, name)
	}
	t.rows[name] = r.Rows.Count
	return putSource(t.Tx, name, r)
}

// createRows returns the rows of a source, in a bucket that has those of each.
func createRows(all *bbolt.Bucket, name string) (*bbolt.Bucket, error) {
	rows, err := all.CreateBucketIfNotExists([]byte(name))
	if err == nil {
		rows.FillPercent = fillPercent
	}
	return rows, err
}

// keyed is an object with its key.
type keyed struct {
	key    string
	object *object.Object
}

// put puts rows in the order of their keys, which is how bbolt's pages are.
func (c *rowCodec) put(to *bbolt.Bucket, resource schema.GroupVersionResource, objects []*object.Object, rows *tally) error {
	c.resource = resource
	sorted := make([]keyed, 0, len(objects))
	for _, o := range objects {
		if key := o.Key(); key != "" {
			sorted = append(sorted, keyed{key, o})
		}
	}
	slices.SortStableFunc(sorted, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	for _, k := range sorted {
		key, row := []byte(k.key), c.encode(k.key, k.object)
		old := to.Get(key)
		if old != nil {
			if bytes.Equal(old, row) {
				continue
			}
			rows.remove(old)
		}
		if err := to.Put(key, row); err != nil {
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

func putRecord(tx *bbolt.Tx, record storeRecord) error {
	value, err := sealJSON(keyStore, record)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucketStore)).Put([]byte(keyStore), value)
}
