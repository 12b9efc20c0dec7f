package deadletter

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// ErrFull is wrapped by the error of Keep if there is no room for the message.
var ErrFull = errors.New("the file of dead letters is full")

// ErrNotFound is wrapped by the error of Get if there is no such letter.
var ErrNotFound = errors.New("no such dead letter")

const (
	// patience is for how long a call waits for another process that has the file open.
	patience = 5 * time.Second
	// entryOverhead is what an entry is counted besides its value, in bytes.
	entryOverhead = 64
)

// bucketLetters holds the entries by event id, and bucketTotals their number and size.
const (
	bucketLetters = "letters"
	bucketTotals  = "totals"
	keyBytes      = "bytes"
)

// Letter is one message that was refused, and why.
type Letter struct {
	ID        string    `json:"id"`        // of the event
	Subject   string    `json:"subject"`   // of the event, too: its object
	Operation string    `json:"operation"` // what happened to that
	Time      time.Time `json:"time"`      // when it was refused
	Reason    string    `json:"reason"`    // event.ReasonOversize or event.ReasonRefused
	Error     string    `json:"error"`     // what the destination said
	Bytes     int       `json:"bytes"`     // of the event's data

	Message *event.Message `json:"-"`
}

// File is the dead letters of one sink.
type File struct {
	Path string
	// MaxBytes bounds the entries together. The file itself can be somewhat larger. 0: no bound, for who only reads
	// and removes.
	MaxBytes int64
	Logger   *slog.Logger // nil: none
}

var _ sinks.DeadLetters = (*File)(nil)

// Name of the file of a sink's dead letters, in the folder of the state.
func Name(sink string) string { return "dead-letters-" + sink + ".db" }

// Keep implements [sinks.DeadLetters]. Its error is Permanent if the file is full; all others, such as a full disk, pass when
// somebody mends them.
func (f *File) Keep(_ context.Context, m *event.Message, reason string, cause error) (where string, err error) {
	value, err := encode(&Letter{
		ID: m.ID, Subject: m.Subject(), Operation: m.Type.String(), Time: time.Now().UTC(),
		Reason: reason, Error: cause.Error(), Bytes: len(m.Data),
	}, m)
	if err != nil {
		return "", sinks.Permanent(err)
	}
	keep := func(tx *bbolt.Tx) error { return f.put(tx, m.ID, value) }
	if err = f.update(true, keep); errors.Is(err, errUnreadable) {
		if err = f.quarantine(err); err == nil {
			err = f.update(true, keep)
		}
	}
	if errors.Is(err, ErrFull) {
		return "", sinks.Permanent(err)
	}
	return "file " + filepath.Base(f.Path), err
}

func (f *File) put(tx *bbolt.Tx, id string, value []byte) error {
	letters, err := tx.CreateBucketIfNotExists([]byte(bucketLetters))
	if err != nil {
		return err
	}
	if before := letters.Get([]byte(id)); before != nil {
		return nil // the same event, from before a crash
	}
	total := totalBytes(tx) + entrySize(id, value)
	if f.MaxBytes > 0 && total > f.MaxBytes {
		return fmt.Errorf("%w: %d bytes of at most %d are taken, and this one has %d", ErrFull, total-entrySize(id, value), f.MaxBytes, entrySize(id, value))
	}
	if err := letters.Put([]byte(id), value); err != nil {
		return err
	}
	return setTotalBytes(tx, total)
}

// List gives all letters, the oldest first, without their messages.
func (f *File) List() (letters []Letter, err error) {
	err = f.view(func(bucket *bbolt.Bucket) error {
		return bucket.ForEach(func(_, value []byte) error {
			l, _, err := decodeHead(value)
			letters = append(letters, l)
			return err
		})
	})
	slices.SortStableFunc(letters, func(a, b Letter) int { return a.Time.Compare(b.Time) })
	return letters, err
}

// Get gives a letter with its message.
func (f *File) Get(id string) (letter Letter, err error) {
	found := false
	err = f.view(func(bucket *bbolt.Bucket) error {
		value := bucket.Get([]byte(id))
		if value == nil {
			return nil
		}
		found = true
		var rest []byte
		if letter, rest, err = decodeHead(value); err != nil {
			return err
		}
		letter.Message, err = event.ParseStored(bytes.Clone(rest)) // what bbolt gives is gone with the transaction
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return letter, err
}

// Drop removes a letter, and reports whether it was there.
func (f *File) Drop(id string) (found bool, err error) {
	if _, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	err = f.update(false, func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(bucketLetters))
		if bucket == nil {
			return nil
		}
		value := bucket.Get([]byte(id))
		if value == nil {
			return nil
		}
		found = true
		total := totalBytes(tx) - entrySize(id, value)
		if err := bucket.Delete([]byte(id)); err != nil {
			return err
		}
		return setTotalBytes(tx, total)
	})
	return found, err
}

// Stats is how many letters there are, and how many bytes they count.
func (f *File) Stats() (letters int, size int64, err error) {
	err = f.view(func(bucket *bbolt.Bucket) error {
		letters, size = bucket.Stats().KeyN, totalBytes(bucket.Tx())
		return nil
	})
	return letters, size, err
}

// quarantine renames a file that can't be read.
func (f *File) quarantine(why error) error {
	renamedTo, err := boltfile.Quarantine(f.Path, "corrupt")
	if err != nil {
		return errors.Join(why, err)
	}
	if f.Logger != nil {
		f.Logger.Error("dead letters cannot be read: the file was quarantined, and an empty one begun", "renamedTo", renamedTo, "err", why)
	}
	return nil
}

func entrySize(id string, value []byte) int64 { return int64(len(id) + len(value) + entryOverhead) }

func totalBytes(tx *bbolt.Tx) int64 {
	bucket := tx.Bucket([]byte(bucketTotals))
	if bucket == nil {
		return 0
	}
	value := bucket.Get([]byte(keyBytes))
	if len(value) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value))
}

func setTotalBytes(tx *bbolt.Tx, total int64) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(bucketTotals))
	if err != nil {
		return err
	}
	return bucket.Put([]byte(keyBytes), binary.BigEndian.AppendUint64(nil, uint64(max(total, 0))))
}

// encode is a letter as one value: its head as a line of JSON, then the message as it is stored.
func encode(l *Letter, m *event.Message) ([]byte, error) {
	head, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return m.AppendStored(append(head, '\n'))
}

var (
	errDamaged    = errors.New("not a dead letter")
	errUnreadable = errors.New("the file is damaged")
)

func decodeHead(value []byte) (l Letter, message []byte, err error) {
	head, message, ok := bytes.Cut(value, []byte{'\n'})
	if !ok {
		return l, nil, errDamaged
	}
	if err := json.Unmarshal(head, &l); err != nil {
		return l, nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return l, message, nil
}

// view reads the letters; a file that is not there has none.
func (f *File) view(read func(*bbolt.Bucket) error) error {
	if _, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := f.open(true, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket([]byte(bucketLetters))
			if bucket == nil {
				return nil
			}
			return read(bucket)
		})
	})
	if errors.Is(err, syscall.EBADF) { // bbolt tries to fill a file that another process has just made
		return nil
	}
	return err
}

func (f *File) update(create bool, change func(*bbolt.Tx) error) error {
	if create {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return err
		}
	}
	return f.open(false, func(db *bbolt.DB) error { return db.Update(change) })
}

// open opens the file for one use. bbolt panics on pages that make no sense, and a file that was cut off faults.
func (f *File) open(readOnly bool, use func(*bbolt.DB) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("dead letters %s: %w: %v", f.Path, errUnreadable, v)
		}
	}()
	db, err := bbolt.Open(f.Path, 0o600, &bbolt.Options{Timeout: patience, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("dead letters %s: %w: %w", f.Path, errUnreadable, err)
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("dead letters %s: another process has the file open: %w", f.Path, err)
	case err != nil:
		return fmt.Errorf("dead letters %s: %w", f.Path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return use(db)
}
