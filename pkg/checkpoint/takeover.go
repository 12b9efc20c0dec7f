package checkpoint

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// scopeUnfinished is the scope of a source during TakeOver. No informer has this scope.
const scopeUnfinished = "(unfinished)"

// moveBytes is the approximate number of row bytes that one transaction moves.
const moveBytes = 4 << 20

// TakeOver moves shares of other sources' rows to the source into.Source, and stores into as the state of this source.
// If both sources have a row for an object, the later state is kept.
//
// TakeOver uses several transactions, so a share of any size requires little memory. Before the last transaction, the
// source has a scope that equals no other scope. After an error or a crash, call TakeOver again with the remaining
// shares.
func (s *Store) TakeOver(into ledger.State, shares []ledger.Share) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	unfinished := ledger.Update{State: into}
	unfinished.Source.Scope = scopeUnfinished
	for _, share := range shares {
		for more := s.record.knows(share.Source); more; {
			err := s.write(func(t *transaction) (err error) {
				if err := t.apply(&unfinished); err != nil {
					return err
				}
				more, err = t.move(share, into.Source.Name)
				return err
			})
			if err != nil {
				return fmt.Errorf("source %q: %w", into.Source.Name, err)
			}
		}
	}
	return s.write(func(t *transaction) error { return t.apply(&ledger.Update{State: into}) })
}

// move moves up to about moveBytes of a share's rows, and reports whether more rows may be left.
func (t *transaction) move(share ledger.Share, into string) (more bool, err error) {
	all := t.Bucket([]byte(bucketRows))
	from, to := all.Bucket([]byte(share.Source)), all.Bucket([]byte(into))
	if from == nil {
		return false, nil
	}
	loser, err := getSource(t.Tx, share.Source)
	if err != nil {
		return false, err
	}
	winner, err := getSource(t.Tx, into)
	if err != nil {
		return false, err
	}
	var keys, rows [][]byte
	size := 0
	cursor := from.Cursor()
	for key, row := cursor.First(); key != nil && size < moveBytes; key, row = cursor.Next() {
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
	return size >= moveBytes, errors.Join(t.putSource(share.Source, loser), t.putSource(into, winner))
}

// isLater reports whether a row contains a later state than another row with the same key.
func (c *rowCodec) isLater(key string, row, than []byte) bool {
	a, errA := c.decode(key, row)
	b, errB := c.decode(key, than)
	if errA != nil || errB != nil {
		return false // Load detects the damage
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
