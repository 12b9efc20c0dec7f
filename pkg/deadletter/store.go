package deadletter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// ErrFull is wrapped by the error of Keep if the message would exceed the store's limit.
var ErrFull = errors.New("no room for dead letters: deadLetter.file.maxBytes is reached")

// ErrNotFound is wrapped by the error of Get if there is no dead letter with this id.
var ErrNotFound = errors.New("no such dead letter")

// suffix is the file name suffix of dead letters. Files that are being written have another suffix.
const suffix = ".letter"

// Letter is a dead letter: a message that a destination rejected, and the reason.
type Letter struct {
	ID        string    `json:"id"`        // the event id
	Subject   string    `json:"subject"`   // the event's subject, which is the object that changed
	Operation string    `json:"operation"` // the event's operation
	Time      time.Time `json:"time"`      // when the message was rejected
	Reason    string    `json:"reason"`    // event.ReasonOversize or event.ReasonRefused
	Error     string    `json:"error"`     // the destination's error
	Bytes     int       `json:"bytes"`     // size of the event's data

	Message *event.Message `json:"-"`
}

// Store is the directory of one sink's dead letters.
type Store struct {
	Dir string
	// MaxBytes limits the total size of the files. 0 means no limit, for callers that only read and remove.
	MaxBytes int64

	used int64 // upper limit of the files' total size; 0 if the files must be counted first

	mu      sync.Mutex // guards counted
	counted counted
}

// counted is a result of Stats.
type counted struct {
	modified time.Time // time of the last change to the directory; zero if the result must not be used again
	letters  int
	size     int64
}

var _ sinks.DeadLetters = (*Store)(nil)

// Name returns the name of a sink's dead-letter directory, which is in the state directory.
func Name(sink string) string { return "dead-letters-" + sink }

// Keep implements [sinks.DeadLetters]. The error is permanent if the store would exceed MaxBytes or the message cannot
// be encoded. After any other error, such as a full disk, Keep can be retried.
func (s *Store) Keep(_ context.Context, m *event.Message, reason string, cause error) (where string, err error) {
	head, err := json.Marshal(&Letter{
		ID: m.ID, Subject: m.Subject(), Operation: m.Type.String(), Time: time.Now().UTC(),
		Reason: reason, Error: cause.Error(), Bytes: len(m.Data),
	})
	if err != nil {
		return "", sinks.Permanent(err)
	}
	data, err := m.AppendStored(append(head, '\n'))
	if err != nil {
		return "", sinks.Permanent(err)
	}
	where = "directory " + filepath.Base(s.Dir)
	if _, err := os.Stat(s.file(m.ID)); err == nil {
		return where, nil // the same event was stored before a crash
	}
	if err := s.reserve(int64(len(data))); err != nil {
		return "", err
	}
	if err := files.WriteFile(s.file(m.ID), data); err != nil {
		s.used = 0 // the directory may have been removed
		return "", fmt.Errorf("store a dead letter: %w", err)
	}
	s.used += int64(len(data))
	return where, nil
}

// reserve creates the directory if necessary, and returns an error if a file of this size would exceed the limit.
func (s *Store) reserve(size int64) error {
	if s.used > 0 && (s.MaxBytes == 0 || s.used+size <= s.MaxBytes) {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	if err := files.SyncDir(filepath.Dir(s.Dir)); err != nil {
		return err
	}
	now, err := s.count() // again, because commands may have removed dead letters
	if err != nil {
		return err
	}
	used := now.size
	s.used = used
	if s.MaxBytes > 0 && used+size > s.MaxBytes {
		return sinks.Permanent(
			fmt.Errorf("%w: %d of %d bytes are in use, but this message requires %d", ErrFull, used, s.MaxBytes, size))
	}
	return nil
}

// file returns the path of a dead letter. The id is hashed because it can contain characters that are not allowed in
// file names.
func (s *Store) file(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:])+suffix)
}

// List returns all dead letters without their messages, the oldest first.
func (s *Store) List() (letters []Letter, err error) {
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		l, err := readLetter(filepath.Join(s.Dir, e.Name()))
		switch {
		case err == nil:
			l.Message = nil
			letters = append(letters, l)
		case !errors.Is(err, fs.ErrNotExist): // otherwise, another process has just removed the file
			return nil, err
		}
	}
	slices.SortStableFunc(letters, func(a, b Letter) int { return a.Time.Compare(b.Time) })
	return letters, nil
}

// readLetter reads a file. Its error contains the path and the remedy.
func readLetter(path string) (l Letter, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		head, stored, _ := bytes.Cut(data, []byte{'\n'})
		if err = json.Unmarshal(head, &l); err == nil {
			l.Message, err = event.ParseStored(stored)
		}
	}
	if err != nil {
		err = fmt.Errorf("cannot read dead letter %s; remove it if it is damaged: %w", path, err)
	}
	return l, err
}

// Get returns a dead letter with its message.
func (s *Store) Get(id string) (Letter, error) {
	l, err := readLetter(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return l, err
}

// Drop removes a dead letter. found is false if there is no dead letter with this id.
func (s *Store) Drop(id string) (found bool, err error) {
	err = os.Remove(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, errors.Join(err, files.SyncDir(s.Dir))
}

// settling is how long a directory must not have changed so that its time shows whether it has changed again.
const settling = 2 * time.Second

// Stats returns the number of dead letters and their total size in bytes. It may be called at any time. It reads the
// directory only if that has changed.
func (s *Store) Stats() (letters int, size int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var modified time.Time
	if info, err := os.Stat(s.Dir); err == nil && time.Since(info.ModTime()) > settling {
		modified = info.ModTime()
	}
	if !modified.IsZero() && modified.Equal(s.counted.modified) {
		return s.counted.letters, s.counted.size, nil
	}
	c, err := s.count()
	if err == nil {
		c.modified = modified
		s.counted = c
	}
	return c.letters, c.size, err
}

// count counts the dead letters.
func (s *Store) count() (c counted, err error) {
	entries, err := s.entries()
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // otherwise, another process has just removed the file
			c.letters++
			c.size += info.Size()
		}
	}
	return c, err
}

// entries returns the dead-letter files in the directory.
func (s *Store) entries() ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return filepath.Ext(e.Name()) != suffix }), err
}
