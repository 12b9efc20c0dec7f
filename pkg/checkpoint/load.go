package checkpoint

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// errNoState is wrapped by the error of Fetch if the store does not contain the requested state.
var errNoState = errors.New("object state not found")

// States returns all sources without their rows, sorted by name. It omits sources whose record cannot be read, and
// sources whose initial list is not complete.
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
			states = append(states, r.State)
		}
	}
	return states
}

// Load returns the state of a source and its rows in key order. If the source does not exist, or if its initial list is
// not complete, Load returns the zero State. The rows are complete, and were committed together with the state. Their
// Raw field is nil. Fetch returns the bytes.
//
// Load fails if the source or a row cannot be read, or if the rows do not match their tally. In this case the next
// update of the source must have ReplaceRows set.
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
		state, rows = r.State, make([]*object.Object, 0, r.Rows.Count)
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

// eachRow calls a function for each row of a source. It returns an error if the rows do not match the tally want.
func (s *Store) eachRow(tx *bbolt.Tx, source string, want tally, call func(*object.Object) error) error {
	bucket := tx.Bucket([]byte(bucketRows)).Bucket([]byte(source))
	if bucket == nil && want == (tally{}) {
		return nil
	}
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
		s.release(tx, len(value))
		return call(o)
	})
	if err == nil && sum != want {
		return fmt.Errorf("%w: %d rows with sum %#x, expected %d rows with sum %#x", boltfile.ErrDamaged,
			sum.Count, sum.Sum, want.Count, want.Sum)
	}
	return err
}

// Fetch returns the JSON of an object's row if the row contains the state that id identifies. The caller may modify the
// result.
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
		err = fmt.Errorf("%w: row %q contains uid@resourceVersion %s@%s, expected %s@%s", errNoState,
			key, o.UID, o.ResourceVersion, id.UID, id.ResourceVersion)
	}
	if err != nil {
		return nil, boltfile.Explain("read the checkpoint", s.path, err)
	}
	return o.Raw, nil
}
