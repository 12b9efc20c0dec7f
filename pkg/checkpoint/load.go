package checkpoint

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// errNoState is wrapped by the error of Fetch if the store does not hold the state that was asked for.
var errNoState = errors.New("the checkpoint does not hold this state")

// States returns all sources without their rows, by name. One that can't be read is left out, see Load.
func (s *Store) States() ([]ledger.State, error) {
	var states []ledger.State
	err := s.view(func(tx *bbolt.Tx) error {
		record, err := getRecord(tx)
		if err != nil {
			return err
		}
		states = nil
		for _, name := range record.Sources {
			if s.isDamaged(name) {
				continue
			}
			r, err := getSource(tx, name)
			if err != nil {
				s.giveUp(name, err)
				continue
			}
			states = append(states, r.state(name))
		}
		return nil
	})
	return states, boltfile.Explain("read the checkpoint", s.path, err)
}

// Load returns a source and its rows, in the order of their keys; the zero State if there is none. The rows are those
// that were committed together with the state, all of them, or none. They have no bytes (Raw), which Fetch returns.
//
// A source of which anything can't be read, or does not add up, is as if it had no checkpoint: the zero State. That is
// logged and counted, and its rows are removed by the next Commit of it. The error is about reading the file at all.
func (s *Store) Load(source string) (state ledger.State, rows []*object.Object, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		record, err := getRecord(tx)
		if err != nil || !record.knows(source) || s.isDamaged(source) {
			return err
		}
		r, err := getSource(tx, source)
		if err != nil {
			return err
		}
		state, rows = r.state(source), make([]*object.Object, 0, r.Rows.Count)
		return s.eachRow(tx, source, r.Rows, func(o *object.Object, size int) error {
			o.Raw = nil
			rows = append(rows, o)
			s.release(tx, size)
			return nil
		})
	})
	if errors.Is(err, boltfile.ErrDamaged) {
		s.giveUp(source, err)
		return ledger.State{}, nil, nil
	}
	if err != nil {
		return ledger.State{}, nil, boltfile.Explain("read the checkpoint", s.path, err)
	}
	return state, rows, nil
}

// eachRow calls a function for each row of a source, with its size in the file. They must add up to want.
func (s *Store) eachRow(tx *bbolt.Tx, source string, want tally, call func(o *object.Object, size int) error) error {
	bucket := tx.Bucket([]byte(bucketRows)).Bucket([]byte(source))
	if bucket == nil {
		return fmt.Errorf("%w: the rows are missing", boltfile.ErrDamaged)
	}
	codec, sum := rowCodec{privacy: s.opts.Privacy}, tally{}
	err := bucket.ForEach(func(key, value []byte) error {
		o, err := codec.decode(string(key), value)
		if err != nil {
			return err
		}
		sum.add(value)
		return call(o, len(value))
	})
	if err == nil && sum != want {
		err = fmt.Errorf("%w: %d rows with sum %#x, of %d rows with sum %#x", boltfile.ErrDamaged, sum.Count, sum.Sum, want.Count, want.Sum)
	}
	return err
}

// Fetch returns the JSON of an object's row, if the row is the state that id names. The result belongs to the caller.
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
		codec := rowCodec{privacy: s.opts.Privacy}
		o, err = codec.decode(key, sealed)
		return err
	})
	if err == nil && (o.UID != id.UID || o.ResourceVersion != id.ResourceVersion) {
		err = fmt.Errorf("%w: row %q is %s@%s, not %s@%s", errNoState, key, o.UID, o.ResourceVersion, id.UID, id.ResourceVersion)
	}
	if err != nil {
		return nil, boltfile.Explain("read the checkpoint", s.path, err)
	}
	return o.Raw, nil
}

// Has reports whether a source has a row for whose key in is true.
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

func getSource(tx *bbolt.Tx, name string) (r sourceRecord, err error) {
	value := tx.Bucket([]byte(bucketSources)).Get([]byte(name))
	if value == nil {
		return r, fmt.Errorf("%w: the record of source %q is missing", boltfile.ErrDamaged, name)
	}
	return r, unsealJSON(name, value, &r)
}

func getRecord(tx *bbolt.Tx) (r storeRecord, err error) {
	return r, unsealJSON(keyStore, tx.Bucket([]byte(bucketStore)).Get([]byte(keyStore)), &r)
}
