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

// Summary describes a checkpoint that the caller has not opened.
type Summary struct {
	Exists     bool
	Locked     bool      // whether another process uses the checkpoint; its content is then not read
	LastCommit time.Time // when the file was last written

	// Unusable is the reason why Open would quarantine the file; empty if Open would use it.
	Unusable                string
	ClusterName, ClusterUID string
	States                  []ledger.State // sorted by name, without sources that cannot be read
	// Destinations contains, by sink, the name of the destination that received the sink's settled events.
	Destinations map[string]string
	Paused       map[string]time.Time // by sink, when it was paused
}

// Peek reads the checkpoint in a directory without changing it. It returns an error if the file cannot be read, or if a
// newer version has written it (files.NewerFormatError). The error explains what to do.
func Peek(dir string) (Summary, error) {
	path := filepath.Join(dir, fileName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Summary{}, nil
	}
	if err != nil {
		return Summary{}, boltfile.Explain("read the checkpoint", path, err)
	}
	s := Summary{Exists: true, LastCommit: info.ModTime()}
	lockPath := filepath.Join(dir, lockName)
	// Without a lock file no process uses the checkpoint, and Lock would create the file.
	if _, err := os.Stat(lockPath); err == nil {
		unlock, err := files.Lock(lockPath, 0)
		if errors.Is(err, files.ErrLocked) {
			s.Locked = true
			return s, nil
		}
		if err != nil {
			return s, boltfile.Explain("lock the checkpoint", dir, err)
		}
		defer func() { _ = unlock() }() // the content was read completely, so an error does not matter
	}
	err = s.read(path)
	if errors.Is(err, boltfile.ErrDamaged) {
		s.Unusable, err = err.Error(), nil
	}
	return s, boltfile.Explain("read the checkpoint", path, err)
}

func (s *Summary) read(path string) error {
	file, record, err := openFile(path, boltfile.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	s.ClusterName, s.ClusterUID = record.ClusterName, record.ClusterUID
	s.Destinations, s.Paused = record.Destinations, record.Paused
	err = file.View(func(tx *bbolt.Tx) error {
		s.States = statesIn(tx, record)
		return nil
	})
	return errors.Join(err, file.Close())
}
