package fifo

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/deltabridge/deltabridge/internal/mapped"
)

const (
	// growBytes is by how much the file grows at a time, once it is as large as that.
	growBytes = 4 << 20
	// lockTimeout is how long to wait for another process to let go of the file.
	lockTimeout = 2 * time.Second
)

// errStopped is what Take returns for items on disk once Run has returned.
var errStopped = errors.New("fifo: the spill file is closed")

// damageError says that the store's own structure is not as it should be.
type damageError struct{ reason any }

func (e *damageError) Error() string { return fmt.Sprintf("the file is damaged: %v", e.reason) }

// spillStore is the file of a Spill: it knows blocks and marks, but neither items nor the queue.
//
// Reads may run beside each other and beside one commit or rewrite.
type spillStore struct {
	path string
	log  *slog.Logger

	mu       sync.RWMutex // guards what follows; held for reading while db is in use
	db       *bbolt.DB    // nil: to be opened when it is needed
	file     *os.File     // db's
	damage   error        // why the file, open or not, can be read in parts at most; nil: it is whole
	unsynced bool         // the file was moved to its place, but its directory was not synced
	stopped  bool

	resident mapped.Meter
}

// openSpillStore opens the file if there is one. Where it can't be read it is set aside, and why is in damage. err is
// for what people have to mend: no permission, another process has the file.
func openSpillStore(path string, log *slog.Logger) (s *spillStore, state spillState, damage, err error) {
	s = &spillStore{path: path, log: log}
	if err := os.Remove(s.newPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, state, nil, fmt.Errorf("remove what an interrupted copy left: %w", err)
	}
	if s.db, s.file, err = openBolt(path, 0); err == nil {
		if state, err = s.load(); err == nil {
			if state.lostMarks > 0 {
				log.Error("Positions in the spill file are damaged; their sources begin where they would without them",
					"path", path, "positions", state.lostMarks)
			}
			return s, state, nil, nil
		}
		if isDamage(err) {
			s.damage = err
		}
		s.close()
		s.damage = nil
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, spillState{}, nil, nil
	case !unusable(err):
		return nil, spillState{}, nil, fmt.Errorf("open the spill file %s: %w", path, err)
	}
	aside := s.asidePath()
	if renameErr := os.Rename(path, aside); renameErr != nil {
		return nil, spillState{}, nil, fmt.Errorf("set the spill file aside, which can't be used (%w): %w", err, renameErr)
	}
	log.Error("The spill file can't be used and was set aside; the queue begins with an empty one",
		"path", path, "setAside", aside, "error", err)
	return s, spillState{}, err, nil
}

// unusable reports whether an error of opening or loading is about the file's content.
func unusable(err error) bool {
	var pathError *fs.PathError
	var errno syscall.Errno
	return !errors.As(err, &pathError) && !errors.As(err, &errno) && !errors.Is(err, bolterrors.ErrTimeout)
}

// openBolt opens a file; flags may have os.O_CREATE, without it the file must exist.
func openBolt(path string, flags int) (db *bbolt.DB, file *os.File, err error) {
	err = guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, NoStatistics: true,
			OpenFile: func(name string, _ int, mode os.FileMode) (*os.File, error) {
				var err error
				file, err = os.OpenFile(name, os.O_RDWR|flags, mode)
				return file, err
			},
		})
		return err
	})
	if err != nil {
		if file != nil {
			_ = file.Close() // done already, unless the file is damaged
		}
		return nil, nil, err
	}
	db.AllocSize = growBytes
	return db, file, nil
}

// guarded runs f, which uses the store's library, and makes errors of its panics over a damaged file, and of faults
// in reading the memory map: the file was cut off, or the disk can't be read.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &damageError{p}
		}
	}()
	return f()
}

// load reads everything but the blocks themselves.
func (s *spillStore) load() (state spillState, err error) {
	if state.fileBytes, err = s.size(); err != nil {
		return state, err
	}
	err = guarded(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			if tx.Size() > state.fileBytes {
				return &damageError{"it was cut off"}
			}
			defer s.resident.Used(s.db, tx, mapped.Limit) // all keys
			return state.read(tx)
		})
	})
	return state, err
}

// acquire gives the open file; the caller ends with s.mu.RUnlock if err is nil.
func (s *spillStore) acquire() (*bbolt.DB, error) {
	for {
		s.mu.RLock()
		if s.db != nil {
			return s.db, nil
		}
		s.mu.RUnlock()
		if err := s.reopen(); err != nil {
			return nil, err
		}
	}
}

func (s *spillStore) reopen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	if s.db != nil || s.damage != nil {
		return s.damage
	}
	db, file, err := openBolt(s.path, 0)
	switch {
	case err == nil:
		s.db, s.file = db, file
		return nil
	case unusable(err):
		s.damage = &damageError{err}
		return s.damage
	}
	return fmt.Errorf("open the spill file again: %w", err)
}

// read appends copies of b's items from the number from on to raw, as [block.items] does. What can't be read is part
// of the result; err means that it may work later.
func (s *spillStore) read(raw []rawItem, b block, from uint64, limit int, budget int64) ([]rawItem, error) {
	db, err := s.acquire()
	if err != nil {
		return raw, err
	}
	before := len(raw)
	err = guarded(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			data := blockData(tx, b)
			if data == nil {
				return errBlockMissing
			}
			raw = b.items(raw, data, from, limit, budget)
			s.resident.Used(db, tx, int64(len(data)))
			return nil
		})
	})
	s.mu.RUnlock()
	if err != nil {
		raw = append(raw[:before], rawItem{first: from, last: b.last, err: err})
	}
	return raw, nil
}

func blockData(tx *bbolt.Tx, b block) []byte {
	bucket := tx.Bucket([]byte(bucketBlocks))
	if bucket == nil {
		return nil
	}
	return bucket.Get(b.key())
}

// forget closes the file; it is opened again when it is needed. A damaged file stays open: its parts are still to be read,
// and it may not open again.
func (s *spillStore) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damage == nil {
		s.close()
	}
}

// close closes the file. If it is damaged, the library may have panicked while it held its locks, and would wait for them for
// ever: then its memory map is given up, and with it the lock on the file stays until the process ends.
func (s *spillStore) close() {
	switch {
	case s.db == nil:
	case s.damage != nil:
		_ = s.file.Close() // nothing is written there any more
	default:
		if err := s.db.Close(); err != nil {
			s.log.Warn("Closing the spill file failed", "path", s.path, "error", err)
		}
	}
	s.db, s.file = nil, nil
}

// stop closes the file for good.
func (s *spillStore) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
	s.stopped = true
}

// commit makes c durable and gives the file's size. After an error c may have been written or not: the next commit has
// to say the same about everything that c did.
func (s *spillStore) commit(c *spillCommit) (int64, error) {
	db, err := s.acquire()
	if err != nil {
		return 0, err
	}
	unsynced := s.unsynced
	if err = s.damage; err == nil {
		err = guarded(func() error {
			return db.Update(func(tx *bbolt.Tx) error {
				defer s.resident.Used(db, tx, c.freedBytes+2*blockBytes) // it reads the ends of what stays, too
				return c.apply(tx)
			})
		})
	}
	var size int64
	if err == nil {
		size, err = s.size()
	}
	s.mu.RUnlock()
	if err == nil && unsynced {
		return size, s.syncDir()
	}
	switch {
	case isDamage(err):
		s.mu.Lock()
		s.damage = err
		s.mu.Unlock()
	case err != nil: // what the library has in memory may differ from the file
		s.forget()
	}
	return size, err
}

func isDamage(err error) bool {
	var damage *damageError
	return errors.As(err, &damage)
}

func (s *spillStore) size() (int64, error) {
	info, err := s.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
