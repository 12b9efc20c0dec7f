package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"maps"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// Share is a part of a source: the rows for whose keys Has is true.
type Share struct {
	Source string
	Has    func(key string) bool
}

// scopeUnfinished is the scope of a source that is taking over rows: that of no informer.
const scopeUnfinished = "(unfinished)"

// TakeOver moves rows of other sources to the one of a state, which becomes its state. Where both have a row, the later one stays.
//
// It makes several transactions, so that shares of any size take little memory. Until the last one the source has a scope that
// equals no other. After an error, or a crash, call it again with the shares that are left.
func (s *Store) TakeOver(into ledger.State, shares []Share) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unfinished := into
	unfinished.Source.Scope = scopeUnfinished
	for _, share := range shares {
		for more := true; more; {
			var err error
			if more, err = s.move(unfinished, share); err != nil {
				return explain("write the checkpoint", s.path, fmt.Errorf("source %q: %w", into.Source.Name, err))
			}
		}
	}
	_, err := s.move(into, Share{})
	return explain("write the checkpoint", s.path, err)
}

// Has reports whether a source has a row for whose key in is true.
func (s *Store) Has(source string, in func(key string) bool) (has bool, err error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	err = s.view(func(tx *bbolt.Tx) error {
		rows := tx.Bucket([]byte(bucketRows)).Bucket([]byte(source))
		if rows == nil {
			return nil
		}
		cursor := rows.Cursor()
		for key, _ := cursor.First(); key != nil && !has; key, _ = cursor.Next() {
			has = in(string(key))
		}
		return nil
	})
	return has, explain("read the checkpoint", s.path, err)
}

// move makes one transaction, and reports whether there is more of the share. A source that is damaged has nothing.
func (s *Store) move(into ledger.State, share Share) (more bool, err error) {
	switch {
	case s.db == nil:
		return false, ErrClosed
	case s.record.ClusterUID == "":
		return false, ErrNoCluster
	case share.Source != "" && (!s.record.knows(share.Source) || s.isDamaged(share.Source)):
		return false, nil
	}
	u := ledger.Update{Source: into.Source, ResourceVersion: into.ResourceVersion, Sinks: into.Sinks, Refilters: into.Refilters}
	record := s.record.with([]ledger.Update{u}, nil)
	w := writer{store: s, rows: map[string]int{}}
	err = s.update(func(tx *bbolt.Tx) error {
		if err := w.apply(tx, &u); err != nil {
			return err
		}
		if err := putRecord(tx, record); err != nil || share.Source == "" {
			return err
		}
		more, err = w.move(tx, share, into.Source)
		return err
	})
	if errors.Is(err, errDamaged) && share.Source != "" {
		s.giveUp(share.Source, err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.record = record
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	maps.Copy(s.rows, w.rows)
	delete(s.damaged, into.Source.Name)
	return more, nil
}

// move moves some of the rows of a share.
func (w *writer) move(tx *bbolt.Tx, share Share, into ledger.Source) (more bool, err error) {
	all := tx.Bucket([]byte(bucketRows))
	from, to := all.Bucket([]byte(share.Source)), all.Bucket([]byte(into.Name))
	loser, err := getSource(tx, share.Source)
	if err != nil {
		return false, err
	}
	winner, err := getSource(tx, into.Name)
	if err != nil {
		return false, err
	}
	if from == nil {
		return false, fmt.Errorf("%w: the rows of source %q are missing", errDamaged, share.Source)
	}
	var keys, rows [][]byte
	size := 0
	cursor := from.Cursor()
	for key, row := cursor.First(); key != nil && size < stageBytes; key, row = cursor.Next() {
		if share.Has(string(key)) {
			keys, rows = append(keys, bytes.Clone(key)), append(rows, bytes.Clone(row))
			size += len(row)
		}
	}
	w.codec.privacy, w.codec.resource = w.store.opts.Privacy, into.Resource
	for n, key := range keys {
		if err := from.Delete(key); err != nil {
			return false, err
		}
		loser.Rows.remove(rows[n])
		if old := to.Get(key); old != nil {
			if !w.later(string(key), rows[n], old) {
				continue
			}
			winner.Rows.remove(old)
		}
		if err := to.Put(key, rows[n]); err != nil {
			return false, err
		}
		winner.Rows.add(rows[n])
	}
	w.store.resident.Used(w.store.db, tx, int64(size))
	w.rows[share.Source], w.rows[into.Name] = loser.Rows.Count, winner.Rows.Count
	return size >= stageBytes, errors.Join(putSource(tx, share.Source, loser), putSource(tx, into.Name, winner))
}

// later reports whether a row is of a later state than another of the same key.
func (w *writer) later(key string, row, than []byte) bool {
	a, errA := w.codec.decode(key, row)
	b, errB := w.codec.decode(key, than)
	if errA != nil || errB != nil {
		return false // what is damaged is noticed when it is loaded
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
