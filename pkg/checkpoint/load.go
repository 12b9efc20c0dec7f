package checkpoint

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// errNoState is wrapped by the error of Fetch if the store does not hold the state.
var errNoState = errors.New("the checkpoint does not hold this state")

// States returns all sources without their rows, by name. A source whose record cannot be read, or whose first list is
// not complete, is left out.
func (s *Store) States() (states []ledger.State, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		record, err := getRecord(tx)
		states = statesIn(tx, record)
		return err
	})
	return states, boltfile.Explain("read the checkpoint", s.path, err)
}

func statesIn(tx *bbolt.Tx, record storeRecord) (states []ledger.State) {
	for _, name := range record.Sources {
		if r, err := getSource(tx, name); err == nil && r.ResourceVersion != "" {
			states = append(states, r.state(name))
		}
	}
	return states
}

// Load returns a source and its rows, in the order of their keys; the zero State if there is none, or if its first list
// is not complete. The rows are those that were committed together with the state, all of them. They have no bytes
// (Raw), which Fetch returns.
//
// It fails if any of that cannot be read or does not add up. The next update must then have ReplaceRows.
func (s *Store) Load(source string) (state ledger.State, rows []*object.Object, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		record, err := getRecord(tx)
		if err != nil || !record.knows(source) {
			return err
		}
		r, err := getSource(tx, source)
		if err != nil || r.ResourceVersion == "" {
			return err
		}
		state, rows = r.state(source), make([]*object.Object, 0, r.Rows.Count)
		return s.eachRow(tx, source, r.Rows, func(o *object.Object) error {
			o.Raw = nil
			rows = append(rows, o)
			return nil
		})
	})
	if err != nil {
		return ledger.State{}, nil, boltfile.Explain("read the checkpoint", s.path, err)
	}
	return state, rows, nil
}

// eachRow calls a function for each row of a source. The rows must add up to want.
func (s *Store) eachRow(tx *bbolt.Tx, source string, want tally, call func(*object.Object) error) error {
	bucket := tx.Bucket([]byte(bucketRows)).Bucket([]byte(source))
	if bucket == nil {
		return fmt.Errorf("%w: the rows are missing", boltfile.ErrDamaged)
	}
	codec, sum := rowCodec{privacy: s.privacy}, tally{}
	err := bucket.ForEach(func(key, value []byte) error {
		o, err := codec.decode(string(key), value)
		if err != nil {
			return err
		}
		sum.add(value)
		s.release(tx, len(value))
		return call(o)
	})
	if err == nil && sum != want {
		return fmt.Errorf("%w: %d rows with sum %#x, expected %d rows with sum %#x", boltfile.ErrDamaged,
			sum.Count, sum.Sum, want.Count, want.Sum)
	}
	return err
}

// Fetch returns the JSON of an object's row if the row is the state that id names. The caller may change the result.
func (s *Store) Fetch(source, key string, id object.Identity) ([]byte, error) {
	var o *object.Object
	err := s.view(func(tx *bbolt.Tx) (err error) {
		rows := tx.Bucket([]byte(bucketRows)).Bucket([]byte(source))
		if rows == nil {
			return fmt.Errorf("%w: source %q has no rows", errNoState, source)
		}
		sealed := rows.Get([]byte(key))
		if sealed == nil {
			return fmt.Errorf("%w: there is no row %q", errNoState, key)
		}
		s.release(tx, len(sealed))
		codec := rowCodec{privacy: s.privacy}
		o, err = codec.decode(key, sealed)
		return err
	})
	if err == nil && (o.UID != id.UID || o.ResourceVersion != id.ResourceVersion) {
		err = fmt.Errorf(
			"%w: row %q is %s@%s, not %s@%s",
			errNoState,
			key,
			o.UID,
			o.ResourceVersion,
			id.UID,
			id.ResourceVersion,
		)
	}
	if err != nil {
		return nil, boltfile.Explain("read the checkpoint", s.path, err)
	}
	return o.Raw, nil
}

// Has reports whether a source has a row for whose key in returns true.
func (s *Store) Has(source string, in func(key string) bool) (has bool, err error) {
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
	return has, boltfile.Explain("read the checkpoint", s.path, err)
}
