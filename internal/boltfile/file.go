package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/files"
)

const (
	// patience is the time to wait for a file that another program has open, such as a tool that inspects the file.
	patience = time.Second

	// suffixNew is the suffix of a file that Prepare has created and Install has not renamed yet. Open removes such a
	// file, which a crash may have left behind.
	suffixNew = ".new"

	pageSize = 4 << 10
	mapSize  = 256 << 20
	growSize = 1 << 20

	// releaseAfter is the number of bytes that may be used through the memory map before the map is released.
	releaseAfter = 1 << 20
)

// Options configures how a file is opened.
type Options struct {
	ReadOnly bool
	NoSync   bool // do not wait for the disk; only for tests and benchmarks
}

// File is an open bbolt file. All methods except Update are safe for concurrent use.
type File struct {
	db       *bbolt.DB
	usage    Usage
	resident atomic.Int64 // bytes read or written through the memory map since its last release
	unsure   bool         // the last transaction failed: see Update
}

// The bucket and the key of the format, as decimal digits. They must never change.
const bucketFormat, keyFormat = "deltabridge", "format"

// Open opens an existing file. It reads the whole file, which takes about 0.1 s per 100 MB if the file is in the
// kernel's page cache. If a newer version has written the file, it returns a files.NewerFormatError.
func Open(path string, o Options) (*File, error) {
	usage, err := inspect(path)
	if err != nil {
		return nil, err
	}
	db, err := openBolt(path, o)
	if err != nil {
		return nil, err
	}
	f := &File{db: db, usage: usage}
	err = f.View(func(tx *bbolt.Tx) error { return checkFormat(tx, path) })
	if err == nil && !o.ReadOnly {
		err = remove(path + suffixNew)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkFormat(tx *bbolt.Tx, path string) error {
	bucket := tx.Bucket([]byte(bucketFormat))
	if bucket == nil {
		return fmt.Errorf("%w: a file of another program", ErrDamaged)
	}
	text := string(bucket.Get([]byte(keyFormat)))
	format, err := strconv.Atoi(text)
	if err != nil || format < 1 {
		return fmt.Errorf("%w: invalid format %q", ErrDamaged, text)
	}
	return files.CheckFormat(path, format)
}

func putFormat(tx *bbolt.Tx) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(bucketFormat))
	if err != nil {
		return err
	}
	return bucket.Put([]byte(keyFormat), strconv.AppendInt(nil, files.Format, 10))
}

func openBolt(path string, o Options) (db *bbolt.DB, err error) {
	defer guard(&err)()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: patience, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, ReadOnly: o.ReadOnly,
		PageSize: pageSize, InitialMmapSize: mapSize, NoSync: o.NoSync, NoGrowSync: o.NoSync, NoStatistics: true,
	})
	if err == nil {
		db.AllocSize = growSize
	}
	return db, err
}

// Prepare creates a file under a temporary name, which Install renames to path. fill writes the content, to which
// Prepare adds the format. It is durable when Prepare returns nil. If Prepare fails, it removes the file.
func Prepare(path string, o Options, fill func(*bbolt.DB) error) (err error) {
	fresh := path + suffixNew
	if err := remove(fresh); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = remove(fresh) // if this fails, the next Open tries again
		}
	}()
	db, err := openBolt(fresh, Options{NoSync: true}) // the whole file is synced below
	if err != nil {
		return err
	}
	if err = fill(db); err == nil {
		err = db.Update(putFormat)
	}
	if err == nil && !o.NoSync {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// Install renames the file that Prepare created to path, replacing an existing file, and opens it.
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
	return &File{db: db}, nil
}

// Usage returns how much of the file was in use when it was opened.
func (f *File) Usage() Usage { return f.usage }

// View runs a read transaction. Byte slices from the file are valid only during the transaction.
func (f *File) View(read func(*bbolt.Tx) error) (err error) {
	defer guard(&err)()
	return f.db.View(read)
}

// Update runs a write transaction, which is durable when Update returns nil. If Update returns an error, the file has
// either its previous content or (only if the disk failed at the very end) the complete new content, but never a
// mixture.
//
// If a transaction fails after bbolt has written its meta page, all later transactions see the new meta page. However,
// the disk may still have the old meta page, because after a write error the kernel treats the page as written
// (https://lwn.net/Articles/752063). The next transaction would then reuse pages that only the old meta page refers to,
// and a crash during this transaction would damage the file.
//
// After an error, Update therefore first commits an empty transaction. It writes only a meta page (NoFreelistSync).
// bbolt syncs data before the meta page, so once the meta page is on disk, everything that it refers to is on disk too.
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

// Release counts bytes that were read or written in tx, which must still be open, and releases the memory map whenever
// releaseAfter bytes have been counted. Otherwise the map would count as memory of the process, so memory limits could
// be exceeded and alerts would report a leak. Released pages stay in the kernel's page cache. Reading a released page
// again costs a minor page fault.
func (f *File) Release(tx *bbolt.Tx, bytes int64) {
	if tx.DB() == f.db && f.resident.Add(bytes) >= releaseAfter {
		f.resident.Store(0)
		release(f.db, tx)
	}
}

// Copy copies the content to another file, in transactions of about maxBytes.
func (f *File) Copy(to *bbolt.DB, maxBytes int64) (err error) {
	defer guard(&err)()
	return bbolt.Compact(to, f.db, maxBytes)
}

// Close waits until all transactions have ended, and then closes the file. Transactions that start later return
// ErrClosed.
func (f *File) Close() error { return f.db.Close() }

// guard turns page faults in the memory map into panics until the returned function is called. The returned function,
// which must be deferred, turns a panic into an error.
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
