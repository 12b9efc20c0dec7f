package fifo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// peekTimeout is how long [PeekSpill] waits for a queue that has the file open.
const peekTimeout = 100 * time.Millisecond

// PeekSpill counts the items in the file of a [Spill] that is not open, and changes nothing. There are none if there is no file.
func PeekSpill(path string) (items int64, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	err = guarded(func() error {
		db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: peekTimeout})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			var state spillState
			if err := state.read(tx); err != nil {
				return err
			}
			for _, b := range state.blocks {
				items += int64(b.last - max(b.first, state.acked+1) + 1)
			}
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("look into the spill file %s: %w", path, err)
	}
	return items, nil
}
