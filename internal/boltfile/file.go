package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/deltabridge/deltabridge/internal/files"
)

const (
	// patience is how long to wait for a file that another program has open, such as a tool that looks into it.
	patience = time.Second

	// suffixNew is that of a file that is not yet what it is to become. Open removes one that a crash left.
	suffixNew = ".new"

	pageSize = 4 << 10
	mapSize  = 256 << 20
	growSize = 1 << 20

	// releaseAfter is how many bytes may be used through the memory map before it is released.
	releaseAfter = 1 << 20
)

// Options of a file.
type Options struct {
	ReadOnly bool
	NoSync   bool // do not wait for the disk: for tests and benchmarks only
}

// File is an open bbolt file. Its methods may be called at the same time, except for Update.
type File struct {
	path     string
	db       *bbolt.DB
	usage    Usage
	resident atomic.Int64 // bytes read or written through the map since it was released
	unsure   bool         // the last transaction failed: see Update
}

// Open opens a file that exists. It reads all of it, which takes about 0.1 s for 100 MB that the kernel has in memory.
func Open(path string, o Options) (*File, error) {
	if !o.ReadOnly {
		if err := remove(path + suffixNew); err != nil {
			return nil, err
		}
	}
	usage, err := inspect(path)
	if err != nil {
		return nil, err
	}
	db, err := openBolt(path, o)
	if err != nil {
		return nil, err
	}
	return &File{path: path, db: db, usage: usage}, nil
}

func openBolt(path string, o Options) (db *bbolt.DB, err error) {
	defer guard(&err)()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: patience, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, ReadOnly: o.ReadOnly,
		PageSize: pageSize, InitialMmapSize: mapSize, NoSync: o.NoSync, NoGrowSync: o.NoSync, NoStatistics: true,
	})
	switch {
	case err == nil:
		db.AllocSize = growSize
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch),
		errors.Is(err, bolterrors.ErrChecksum):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return db, err
}

// Prepare makes the file that Install is to put under a name. fill puts its content into it, all of which is on the
// disk when Prepare returns. If it fails nothing is left of it.
func Prepare(path string, o Options, fill func(*bbolt.DB) error) (err error) {
	fresh := path + suffixNew
	if err := remove(fresh); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = remove(fresh) // the next Open tries again
		}
	}()
	db, err := openBolt(fresh, Options{NoSync: true}) // synced as a whole
	if err != nil {
		return err
	}
	err = fill(db)
	if err == nil && !o.NoSync {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// Install gives the file that was prepared its name, which another file may have had, and opens it.
func Install(path string, o Options) (*File, error) {
	if err := os.Rename(path+suffixNew, path); err != nil {
		return nil, err
	}
	if !o.NoSync {
		if err := files.SyncDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	db, err := openBolt(path, o)
	if err != nil {
		return nil, err
	}
	return &File{path: path, db: db}, nil
}

// Usage returns how much of the file holds something, as Open found it.
func (f *File) Usage() Usage { return f.usage }

// View runs a read transaction. The file's bytes are valid only within it.
func (f *File) View(read func(*bbolt.Tx) error) (err error) {
	defer guard(&err)()
	return f.db.View(read)
}

// Update runs a write transaction, which is on the disk when Update returns nil. If it fails, the file is what it
// was, or (only if the disk failed at the very end) what it was to become, never a part of both.
//
// A transaction that failed when its meta page was already written is seen by all that follow, but the disk may still
// hold the one before, and after an error the kernel takes the page for written (https://lwn.net/Articles/752063).
// The next transaction would reuse the pages that only the one before needs, and a crash in its middle would leave a
// mixture. So after an error an empty transaction comes first, which writes nothing but a meta page (NoFreelistSync):
// when that is on the disk, what it refers to is too, because data is synced before meta.
func (f *File) Update(write func(*bbolt.Tx) error) (err error) {
	defer guard(&err)()
	if f.unsure {
		if err := f.db.Update(func(*bbolt.Tx) error { return nil }); err != nil {
			return err
		}
	}
	f.unsure = true
	if err := f.db.Update(write); err != nil {
		return err
	}
	f.unsure = false
	return nil
}

// Release counts bytes that were read or written within a transaction of the file, which must be open, and releases the
// memory map after each releaseAfter of them. Otherwise the map would count as memory of the process, which limits and
// alarms take for a leak. Released pages stay in the kernel's cache; reading them again costs a minor page fault.
func (f *File) Release(tx *bbolt.Tx, bytes int64) {
	if tx.DB() == f.db && f.resident.Add(bytes) >= releaseAfter {
		f.resident.Store(0)
		release(f.db, tx)
	}
}

// Compact copies the file, without free pages, into one that Prepare made.
func (f *File) Compact(to *bbolt.DB) (err error) {
	defer guard(&err)()
	const inMemory = 8 << 20
	return bbolt.Compact(to, f.db, inMemory)
}

// Close closes the file, once all transactions have ended. Transactions that begin later return ErrClosed.
func (f *File) Close() error { return f.db.Close() }

// guard is deferred, twice: it makes faults of the memory map panics, and when it is done panics errors.
func guard(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
