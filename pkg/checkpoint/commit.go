package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Commit writes the updates in their order, the configuration of each sink, and the positions as AddPositions does, in
// one transaction. The transaction is on disk when Commit returns. Sinks that are not in sinkConfigs are removed
// together with their watermarks, positions, pauses and events. If sinkConfigs is nil, all sinks stay unchanged. If the
// configuration of a sink has changed, the old configuration is recorded in every source (State.Refilters), unless an
// update of the source replaces its state.
//
// If Commit fails, the file keeps its previous content. If the disk fails at the very end of the commit, the file may
// contain the complete new content instead. It never contains a mixture. The store remains usable. Repeat the call with
// the same updates, or with updates that include them.
//
// If an update has an empty ResourceVersion, the initial list of its source is not complete: Load ignores the source,
// and Open removes it. Objects without a name get no row. Call BeginCluster before the first Commit.
func (s *Store) Commit(
	updates []ledger.Update, sinkConfigs map[string]string, positions map[string]sinks.Positions,
) error {
	if err := s.lock(); err != nil {
		return err
	}
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
		t.record.add(positions)
		return nil
	})
}

// Forget removes a source that is no longer watched, and its rows. If the source does not exist, Forget does nothing.
func (s *Store) Forget(source string) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.writing.Unlock()
	if !s.record.knows(source) {
		return nil
	}
	return s.write(func(t *transaction) error { return t.forget(source) })
}

func (t *transaction) forget(source string) error {
	t.record.Sources = slices.DeleteFunc(t.record.Sources, func(name string) bool { return name == source })
	if err := t.set(statelog.Pair{Bucket: bucketSources, Key: source}); err != nil {
		return err
	}
	return t.set(statelog.Pair{Bucket: bucketRows, Source: source})
}

// setSinks stores the configurations of all sinks. It removes the events of all other sinks, and their data from the
// store record and from every source, so a removed sink that is added again later counts as new. If the configuration
// of a sink has changed, the old configuration is recorded in every source. If configs is nil, setSinks does nothing.
func (t *transaction) setSinks(configs map[string]string) error {
	before := t.record.Sinks
	if configs == nil || maps.Equal(before, configs) {
		return nil
	}
	if err := t.removeEvents(configs); err != nil {
		return err
	}
	t.record.Sinks = maps.Clone(configs)
	t.record.beginEpoch()
	removed := func(sink string) bool { _, ok := configs[sink]; return !ok }
	maps.DeleteFunc(t.record.Destinations, func(sink, _ string) bool { return removed(sink) })
	maps.DeleteFunc(t.record.Positions, func(sink string, _ sinks.Positions) bool { return removed(sink) })
	maps.DeleteFunc(t.record.Paused, func(sink string, _ time.Time) bool { return removed(sink) })
	maps.DeleteFunc(t.record.Lost, func(sink string, _ time.Time) bool { return removed(sink) })
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

// refilter records that a sink may have been sent the source's objects under an earlier filter.
func (r *sourceRecord) refilter(sink, old string) {
	if r.Refilters == nil {
		r.Refilters = map[string]ledger.Refilter{}
	}
	noted := r.Refilters[sink]
	if noted.Settled {
		noted.Former, noted.Filters = noted.Filters, nil
	}
	if !slices.Contains(noted.Filters, old) {
		noted.Filters = append(noted.Filters, old)
	}
	noted.Change, noted.Settled = NewChange(), false
	r.Refilters[sink] = noted
}

// NewChange returns a name for a configuration change, which distinguishes the change from all others.
func NewChange() string { return strconv.FormatInt(time.Now().UnixMilli(), 36) }

// beginEpoch replaces the epoch with a new one, which is greater than all before it. The clock can be behind that of
// the process that began the last one.
func (r *storeRecord) beginEpoch() {
	last, _ := strconv.ParseInt(r.Epoch, 36, 64) // 0 if there is none
	r.Epoch = strconv.FormatInt(max(time.Now().UnixMilli(), last+1), 36)
}

// SetWatch stores the watch configuration and returns the name of its last change. If watch differs from the stored
// configuration, this is a new name. If the configuration has never changed, the name is empty. The configuration is on
// disk when SetWatch returns. If it is on disk already, nothing is written, so that a restart requires no free space.
//
// epoch is the name of the last change to the watch configuration or to the configuration of a sink. It is never empty
// in a new store.
func (s *Store) SetWatch(watch string) (change, epoch string, err error) {
	err = s.note(func(r *storeRecord) {
		if r.Watch != watch {
			r.beginEpoch()
			if r.Watch != "" {
				r.WatchChange = r.Epoch
			}
		}
		r.Watch, change, epoch = watch, r.WatchChange, r.Epoch
	})
	return change, epoch, err
}

// SetDestination stores the name of the destination that received the settled events of a sink. The name is on disk
// when SetDestination returns.
func (s *Store) SetDestination(sink, name string) error {
	return s.note(func(r *storeRecord) {
		if r.Destinations == nil {
			r.Destinations = map[string]string{}
		}
		r.Destinations[sink] = name
	})
}

// SetPaused stores when a sink was paused, or, if since is zero, that it is not paused. The change is on disk when
// SetPaused returns. The first Commit whose configurations do not contain the sink ends the pause.
func (s *Store) SetPaused(sink string, since time.Time) error {
	return s.note(func(r *storeRecord) { setTime(&r.Paused, sink, since) })
}

// SetLost stores when it was found that events of a sink are lost, because a file or a value is damaged, or, if at is
// zero, that the sink has been sent this. The change is on disk when SetLost returns. The first Commit whose
// configurations do not contain the sink ends this, too.
func (s *Store) SetLost(sink string, at time.Time) error {
	return s.note(func(r *storeRecord) { setTime(&r.Lost, sink, at) })
}

// setTime sets the time of a sink, or removes it if it is zero.
func setTime(times *map[string]time.Time, sink string, at time.Time) {
	if *times == nil {
		*times = map[string]time.Time{}
	}
	if (*times)[sink] = at.UTC().Round(0); at.IsZero() {
		delete(*times, sink)
	}
}

// AddPositions replaces the positions of parts of the sinks' destinations. They are on disk when AddPositions returns.
func (s *Store) AddPositions(positions map[string]sinks.Positions) error {
	return s.note(func(r *storeRecord) { r.add(positions) })
}

// note applies a change to the store record. If the change modifies nothing, nothing is written.
func (s *Store) note(change func(*storeRecord)) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.writing.Unlock()
	return s.change(change)
}

// change is like note, but the caller must already hold s.writing.
func (s *Store) change(change func(*storeRecord)) error {
	record := s.record.clone()
	if change(&record); reflect.DeepEqual(record, s.record) {
		return nil
	}
	return s.write(func(t *transaction) error {
		t.record = record
		return nil
	})
}

// apply writes an update.
func (t *transaction) apply(u *ledger.Update) (err error) {
	name := u.Source.Name
	if name == "" {
		return errors.New("empty name")
	}
	var r sourceRecord
	if t.record.knows(name) && !u.ReplaceRows {
		r, err = getSource(t.Tx, name)
	} else {
		err = t.set(statelog.Pair{Bucket: bucketRows, Source: name})
	}
	if err != nil {
		return err
	}
	rows, err := t.bucket(bucketRows, name)
	if err != nil {
		return err
	}
	for _, key := range u.Deletes {
		if old := rows.Get([]byte(key)); old != nil {
			r.Rows.remove(old)
			if err := t.set(statelog.Pair{Bucket: bucketRows, Source: name, Key: key}); err != nil {
				return err
			}
		}
	}
	t.codec.resource = u.Source.Resource
	if err := t.putRows(name, u.Upserts, &r.Rows); err != nil {
		return err
	}
	t.store.release(t.Tx, (len(u.Upserts)+len(u.Deletes))*pageSize)
	r.State = u.State
	return t.putSource(name, r)
}

// pageSize is an estimate of the number of file bytes that are read and written per row.
const pageSize = 4 << 10

// putSource writes the record of a source.
func (t *transaction) putSource(name string, r sourceRecord) error {
	if at, found := slices.BinarySearch(t.record.Sources, name); !found {
		t.record.Sources = slices.Insert(t.record.Sources, at, name)
	}
	return t.putJSON(bucketSources, name, r)
}

// putRows writes rows in key order, which is the order of bbolt's pages. If two objects have the same key, the later
// one in the slice is kept.
func (t *transaction) putRows(source string, objects []*object.Object, rows *tally) error {
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
	to, err := t.bucket(bucketRows, source)
	if err != nil {
		return err
	}
	for _, k := range sorted {
		row := t.codec.encode(k.key, k.object)
		if old := to.Get([]byte(k.key)); old != nil {
			rows.remove(old)
		}
		p := statelog.Pair{Bucket: bucketRows, Source: source, Key: k.key, Value: row}
		if err := t.set(p); err != nil {
			return fmt.Errorf("row %q: %w", k.key, err)
		}
		rows.add(row)
	}
	return nil
}
