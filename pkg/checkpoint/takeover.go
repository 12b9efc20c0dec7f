package checkpoint

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// scopeUnfinished is the scope of a source that is taking over rows: that of no informer.
const scopeUnfinished = "(unfinished)"

// TakeOver moves rows of other sources to the one of a state, which becomes its state. Where both have a row, the
// later one stays.
//
// It makes several transactions, so that shares of any size take little memory. Until the last one the source has a
// scope that equals no other. After an error, or a crash, call it again with the shares that are left.
func (s *Store) TakeOver(into ledger.State, shares []ledger.Share) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.record.ClusterUID == "" {
		return errNoCluster
	}
	unfinished := into
	unfinished.Source.Scope = scopeUnfinished
	for _, share := range shares {
		for more := true; more; {
			var err error
			if more, err = s.move(unfinished, share); err != nil {
				return fmt.Errorf("source %q: %w", into.Source.Name, err)
			}
		}
	}
	return s.write(func(t *transaction) error { return t.apply(updateTo(into)) })
}

// updateTo makes a state that of its source.
func updateTo(s ledger.State) *ledger.Update {
	return &ledger.Update{Source: s.Source, ResourceVersion: s.ResourceVersion, Sinks: s.Sinks, Refilters: s.Refilters}
}

// move makes one transaction, and reports whether there is more of the share. A source that is damaged has nothing.
func (s *Store) move(into ledger.State, share ledger.Share) (more bool, err error) {
	if !s.record.knows(share.Source) || s.isDamaged(share.Source) {
		return false, nil
	}
	err = s.write(func(t *transaction) error {
		if err := t.apply(updateTo(into)); err != nil {
			return err
		}
		more, err = t.move(share, into.Source)
		return err
	})
	if errors.Is(err, boltfile.ErrDamaged) {
		s.giveUp(share.Source, err)
		return false, nil
	}
	return more, err
}

// move moves some of the rows of a share, and reports whether there are more.
func (t *transaction) move(share ledger.Share, into ledger.Source) (more bool, err error) {
	all := t.Bucket([]byte(bucketRows))
	from, to := all.Bucket([]byte(share.Source)), all.Bucket([]byte(into.Name))
	loser, err := getSource(t.Tx, share.Source)
	if err != nil {
		return false, err
	}
	winner, err := getSource(t.Tx, into.Name)
	if err != nil {
		return false, err
	}
	if from == nil {
		return false, fmt.Errorf("%w: the rows of source %q are missing", boltfile.ErrDamaged, share.Source)
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
	for n, key := range keys {
		if err := from.Delete(key); err != nil {
			return false, err
		}
		loser.Rows.remove(rows[n])
		if old := to.Get(key); old != nil {
			if !t.codec.isLater(string(key), rows[n], old) {
				continue
			}
			winner.Rows.remove(old)
		}
		if err := to.Put(key, rows[n]); err != nil {
			return false, err
		}
		winner.Rows.add(rows[n])
	}
	t.store.release(t.Tx, size)
	return size >= stageBytes, errors.Join(t.putSource(share.Source, loser), t.putSource(into.Name, winner))
}

// isLater reports whether a row is of a later state than another of the same key.
func (c *rowCodec) isLater(key string, row, than []byte) bool {
	a, errA := c.decode(key, row)
	b, errB := c.decode(key, than)
	if errA != nil || errB != nil {
		return false // what is damaged is noticed when it is loaded
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
