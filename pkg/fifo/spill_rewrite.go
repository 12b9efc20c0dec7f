package fifo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// copyBytes bounds a transaction of a copy.
const copyBytes = 4 << 20

func (s *spillStore) newPath() string { return s.path + ".new" }

// asidePath is a name for a file that can't be used, with the time; no file has it.
func (s *spillStore) asidePath() string {
	base := s.path + ".damaged-" + time.Now().UTC().Format("20060102T150405Z")
	for i := 1; ; i++ {
		name := base
		if i > 1 {
			name = fmt.Sprintf("%s.%d", base, i)
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
}

// rewrite puts a new file in the place of the old one, or of none: with c, of which all marks must be there, and those
// of the given blocks that can be read. With aside the old file is kept beside it.
func (s *spillStore) rewrite(blocks []block, c *spillCommit, aside bool) (int64, error) {
	db, file, err := openBolt(s.newPath(), os.O_CREATE|os.O_TRUNC)
	if err == nil {
		err = guarded(func() error { return s.copy(db, blocks, c) })
		if err == nil {
			err = s.replace(db, file, aside)
		}
		if err != nil {
			discard(db, file, err)
		}
	}
	if err != nil {
		os.Remove(s.newPath()) //nolint:errcheck // it is made anew, and removed when the queue is opened
		return 0, fmt.Errorf("replace the spill file: %w", err)
	}
	if err := s.syncDir(); err != nil { // tried again by the next commit
		return 0, fmt.Errorf("sync the spill file's directory: %w", err)
	}
	s.forget() // and opened under its own name, which errors tell
	info, err := os.Stat(s.path)
	if err != nil {
		return 0, fmt.Errorf("look at the new spill file: %w", err)
	}
	return info.Size(), nil
}

// discard closes a file that is not used, after err. Its memory map would hold the room on disk of a file that is removed; but
// after a panic the library may wait for ever for its own locks.
func discard(db *bbolt.DB, file *os.File, err error) {
	if isDamage(err) {
		_ = file.Close()
		return
	}
	_ = db.Close()
}

// copy fills db, a few blocks at a time.
func (s *spillStore) copy(db *bbolt.DB, blocks []block, c *spillCommit) error {
	err := db.Update(c.apply)
	for i := 0; i < len(blocks) && err == nil; {
		err = db.Update(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket([]byte(bucketBlocks))
			bucket.FillPercent = 1
			for done := int64(0); i < len(blocks) && done < copyBytes; i++ {
				data, err := s.blockCopy(blocks[i])
				switch {
				case isDamage(err) || errors.Is(err, fs.ErrNotExist): // then nothing can be read
					i = len(blocks)
					return nil
				case err != nil:
					return err
				case data == nil:
					continue // who reads it finds that it is missing
				}
				if err := bucket.Put(blocks[i].key(), data); err != nil {
					return fmt.Errorf("copy a block: %w", err)
				}
				done += blocks[i].bytes
			}
			return nil
		})
	}
	return err
}

// blockCopy gives b as it lies in the file, or nil if it can't be read. err is about the whole file.
func (s *spillStore) blockCopy(b block) (data []byte, err error) {
	db, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	err = guarded(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			data = append(data, blockData(tx, b)...)
			s.resident.Used(db, tx, int64(len(data)))
			return nil
		})
	})
	if err != nil {
		return nil, nil // this block is lost, others may not be
	}
	return data, nil
}

// replace moves the new file, which is complete and synced, to its place. At each moment there is one file under the
// name, unless the file system has no hard links.
func (s *spillStore) replace(db *bbolt.DB, file *os.File, aside bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if aside {
		name := s.asidePath()
		err := os.Link(s.path, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(s.path, name)
		}
		if err == nil {
			s.log.Error("The spill file is damaged and was set aside; what can be read of it was copied",
				"path", s.path, "setAside", name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(s.newPath(), s.path); err != nil {
		return err
	}
	s.close()
	s.db, s.file, s.damage, s.unsynced = db, file, nil, true
	return nil
}

// syncDir makes the file's new place durable.
func (s *spillStore) syncDir() error {
	d, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsynced = false
	return nil
}
