package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// Summary describes a checkpoint that is not opened.
type Summary struct {
	Exists     bool
	Locked     bool // another process uses it, so that its content is not read
	SizeBytes  int64
	LastCommit time.Time // when the file was last written

	// Unusable says why Open would quarantine the file; empty if it would not.
	Unusable                string
	ClusterName, ClusterUID string
	States                  []ledger.State // by name; sources that cannot be read are left out
	// Destinations says for each sink which destination has what was settled for it.
	Destinations map[string]string
}

// Peek reads the checkpoint of a directory and changes nothing. It fails only if it cannot read the file; the error
// says what to do.
func Peek(dir string) (Summary, error) {
	path := filepath.Join(dir, fileName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Summary{}, nil
	}
	if err != nil {
		return Summary{}, boltfile.Explain("look at the checkpoint", path, err)
	}
	s := Summary{Exists: true, SizeBytes: info.Size(), LastCommit: info.ModTime()}
	lockPath := filepath.Join(dir, lockName)
	if _, err := os.Stat(lockPath); err == nil { // otherwise no process has it, and Lock would make the file
		unlock, err := files.Lock(lockPath, 0)
		if errors.Is(err, files.ErrLocked) {
			s.Locked = true
			return s, nil
		}
		if err != nil {
			return s, boltfile.Explain("lock the checkpoint", dir, err)
		}
		defer func() { _ = unlock() }() // what was read is valid anyway
	}
	err = s.read(path)
	if why, ok := errors.AsType[*unusable](err); ok {
		s.Unusable, err = why.Error(), nil
	}
	return s, boltfile.Explain("read the checkpoint", path, err)
}

func (s *Summary) read(path string) error {
	file, record, err := openFile(path, boltfile.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	s.ClusterName, s.ClusterUID, s.Destinations = record.ClusterName, record.ClusterUID, record.Destinations
	err = file.View(func(tx *bbolt.Tx) error {
		s.States = statesIn(tx, record)
		return nil
	})
	return errors.Join(err, file.Close())
}
