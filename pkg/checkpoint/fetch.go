package checkpoint

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// ErrNoState is wrapped by the error of Fetch if the store does not hold the state that was asked for.
var ErrNoState = errors.New("the checkpoint does not hold this state")

// Fetch gives the JSON of an object's row, if the row is the state that id names. The result belongs to the caller. It
// does not wait for a commit.
func (s *Store) Fetch(source, key string, id object.Identity) ([]byte, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	var o *object.Object
	err := s.view(func(tx *bbolt.Tx) (err error) {
		rows := tx.Bucket([]byte(bucketRows)).Bucket([]byte(source))
		if rows == nil {
			return fmt.Errorf("%w: source %q has no rows", ErrNoState, source)
		}
		sealed := rows.Get([]byte(key))
		if sealed == nil {
			return fmt.Errorf("%w: there is no row %q", ErrNoState, key)
		}
		s.resident.Used(s.db, tx, int64(len(sealed)))
		codec := rowCodec{privacy: s.opts.Privacy}
		o, err = codec.decode(key, sealed)
		return err
	})
	if err != nil {
		return nil, explain("read the checkpoint", s.path, err)
	}
	if o.UID != id.UID || o.ResourceVersion != id.ResourceVersion {
		return nil, explain("read the checkpoint", s.path,
			fmt.Errorf("%w: row %q is %s@%s, not %s@%s", ErrNoState, key, o.UID, o.ResourceVersion, id.UID, id.ResourceVersion))
	}
	return o.Raw, nil
}
