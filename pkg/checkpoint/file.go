package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// boltPatience is how long to wait for a file that another program has open, such as a tool that looks into it.
	boltPatience = time.Second

	// suffixNew is that of a file that is not yet what it is to become. One that is found was left by a crash.
	suffixNew = ".new"

	// sparseSize is the size below which a file is not compacted, compactSize the number of bytes in use above
	// which that would take too long: at more than 50 MB/s a start is not held up for more than 10 s.
	sparseSize, compactSize = 8 << 20, 512 << 20

	// pageSize is fixed, so that a file is the same wherever it was made. Larger pages cost 20 % less CPU, and a commit
	// of scattered rows writes as much more as they are larger.
	pageSize = 4 << 10

	// mapSize is the address space that is mapped from the start. Each time that a file outgrows its map bbolt copies
	// all that the transaction has changed so far: 20,000 rows took 900 MB of allocations instead of 95 MB.
	mapSize = 256 << 20

	// growSize is the step in which the file grows.
	growSize = 1 << 20

	// compactBytes is how much compaction holds in memory.
	compactBytes = 8 << 20
)

// sparse reports whether a file is worth compacting: bbolt itself never gives anything back.
func (u usage) sparse() bool {
	return u.total >= sparseSize && u.used < u.total/2 && u.used <= compactSize
}

// refusal says why a file is not used.
type refusal struct {
	reason string // for the file's new name
	err    error
}

func (r *refusal) Error() string { return r.reason + ": " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// openBolt opens a bbolt file with the settings of doc.go.
func openBolt(path string, noSync bool) (db *bbolt.DB, err error) {
	defer recoverFault(&err)()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: boltPatience, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true,
		PageSize: pageSize, InitialMmapSize: mapSize, NoSync: noSync, NoGrowSync: noSync, NoStatistics: true,
	})
	if err == nil {
		db.AllocSize = growSize
	}
	return db, err
}

// openChecked opens a file that is there if it is one that this program can use; otherwise the error is a *refusal.
func openChecked(path string, noSync bool) (*bbolt.DB, storeRecord, usage, error) {
	size, err := inspectFile(path)
	if err != nil {
		return nil, storeRecord{}, size, refuse(err)
	}
	db, err := openBolt(path, noSync)
	if err != nil {
		return nil, storeRecord{}, size, refuse(err)
	}
	record, err := readHeader(db)
	if err != nil {
		return nil, storeRecord{}, size, errors.Join(refuse(err), db.Close())
	}
	return db, record, size, nil
}

func inspectFile(path string) (usage, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return usage{}, err
	}
	if !info.Mode().IsRegular() {
		return usage{}, fmt.Errorf("not a regular file (%s)", info.Mode().Type())
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return usage{}, err
	}
	defer file.Close()
	return inspect(file)
}

// refuse makes a *refusal of an error that is about what is in a file, if it is none yet.
func refuse(err error) error {
	switch {
	case errors.Is(err, errDamaged), errors.Is(err, bolterrors.ErrInvalid),
		errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		return &refusal{"corrupt", err}
	}
	return err
}

// readHeader reads what tells a checkpoint from other files, and what there is once in it.
func readHeader(db *bbolt.DB) (record storeRecord, err error) {
	defer recoverFault(&err)()
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(bucketStore))
		if bucket == nil {
			return &refusal{"foreign", errors.New("it is a bbolt file, but not a checkpoint")}
		}
		version, err := parseFormat(bucket.Get([]byte(keyFormat)))
		if err != nil {
			return err
		}
		if version > formatVersion {
			return &refusal{"newer-format", fmt.Errorf("it is of format %d, and this program knows none above %d", version, formatVersion)}
		}
		if tx.Bucket([]byte(bucketSources)) == nil || tx.Bucket([]byte(bucketRows)) == nil {
			return fmt.Errorf("%w: a bucket is missing", errDamaged)
		}
		return unsealJSON(keyStore, bucket.Get([]byte(keyStore)), &record)
	})
	return record, err
}

// create makes an empty checkpoint and closes it.
func create(path string, record storeRecord, noSync bool) error {
	db, err := openBolt(path, noSync)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketStore, bucketSources, bucketRows} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		format := strconv.AppendInt(nil, formatVersion, 10)
		if err := tx.Bucket([]byte(bucketStore)).Put([]byte(keyFormat), format); err != nil {
			return err
		}
		return putRecord(tx, record)
	})
	return errors.Join(err, db.Close())
}

func putRecord(tx *bbolt.Tx, record storeRecord) error {
	value, err := sealJSON(keyStore, record)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucketStore)).Put([]byte(keyStore), value)
}

// compact puts a copy without free pages in the place of a file that is open, and opens it instead. If the copy can't
// be made, the file stays.
func (s *Store) compact(db *bbolt.DB, size usage) (*bbolt.DB, error) {
	fresh := s.path + suffixNew
	err := compactTo(fresh, db)
	if err == nil {
		err = os.Rename(fresh, s.path)
	}
	if err != nil {
		s.logger.Warn("checkpoint could not be compacted and stays as it is",
			"path", s.path, "error", errors.Join(err, remove(fresh)))
		return db, nil
	}
	// From here on the file that db has open is nobody's.
	if err := errors.Join(db.Close(), syncFolder(s.path)); err != nil {
		return nil, err
	}
	s.logger.Info("checkpoint compacted", "path", s.path, "bytesBefore", size.total, "bytesUsed", size.used)
	return openBolt(s.path, s.opts.NoSync)
}

func compactTo(path string, from *bbolt.DB) (err error) {
	to, err := openBolt(path, true) // synced as a whole
	if err != nil {
		return err
	}
	defer recoverFault(&err)()
	err = bbolt.Compact(to, from, compactBytes)
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// removeLeftovers removes what a crash left of a file that was about to be made.
func removeLeftovers(path string) error { return remove(path + suffixNew) }

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder makes the names in a file's folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // a file system that has no such thing
	}
	return err
}

// asideName is a name that no file has yet.
func asideName(path, reason string, now time.Time) string {
	slug := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(reason)), "-")
	name := fmt.Sprintf("%s.%.40s-%s", path, slug, now.UTC().Format("20060102T150405Z"))
	for n, unique := 2, name; ; n++ {
		if _, err := os.Lstat(unique); err != nil {
			return unique
		}
		unique = fmt.Sprintf("%s-%d", name, n)
	}
}
