package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
)

// errNoCluster is returned before BeginCluster said whose objects these are.
var errNoCluster = errors.New("checkpoint: BeginCluster was not called")

// Options of Open.
type Options struct {
	Path        string       // the directory of the checkpoint (state.path); it is made if it is missing
	ClusterName string       // for messages; what identifies a cluster is its uid
	Logger      *slog.Logger // nil: none
	Privacy     *Privacy     // what rows may hold in clear; nil: everything
	NoSync      bool         // do not wait for the disk: for tests and benchmarks only
}

// Stats describe a store. Counts are since Open.
type Stats struct {
	SizeBytes   int64     // of the file
	Sources     int       // that there are records of
	Rows        int64     // of all sources
	Commits     int64     // transactions that were written
	Errors      int64     // transactions that failed
	Quarantined int64     // files that were renamed since they could not be used
	Damaged     int64     // sources that could not be read and were given up, each once
	LastCommit  time.Time // when all that was to be written last was; zero: not yet
	LastError   string    // of the last commit; empty if it succeeded
}

// Store is the durable checkpoint of one bridge. It is safe for concurrent use. What reads does not wait for what
// writes.
type Store struct {
	path   string // of the file
	opts   Options
	logger *slog.Logger
	unlock func() error

	writing sync.Mutex // held by all that changes the file
	file    atomic.Pointer[boltfile.File]

	mu      sync.Mutex  // never held while waiting
	record  storeRecord // as it is in the file; it changes with both locks held
	stats   Stats
	rows    map[string]int  // number of rows by source
	damaged map[string]bool // sources that could not be read, until something is committed of them
	stages  map[string]*Stage
}

const (
	fileName     = "checkpoint.db"
	lockName     = "checkpoint.lock"
	lockPatience = 1500 * time.Millisecond
)

// Open opens the checkpoint of a directory, or begins one, and keeps others out until Close.
//
// It never fails for what is in the file: one that is corrupt, not a checkpoint, or of a newer format is quarantined
// and an empty one is begun. It fails if the directory can't be used, is full, or another process uses it
// (files.ErrLocked, after a short wait); the error says what to do.
//
// It reads the whole file, and shortens it if most of it is free.
func Open(opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opts.Path, 0o700); err != nil {
		return nil, boltfile.Explain("make the directory of the checkpoint", opts.Path, err)
	}
	unlock, err := files.Lock(filepath.Join(opts.Path, lockName), lockPatience)
	if err != nil {
		return nil, boltfile.Explain("lock the checkpoint", opts.Path, err)
	}
	s := &Store{
		path: filepath.Join(opts.Path, fileName), opts: opts, logger: opts.Logger, unlock: unlock,
		rows: map[string]int{}, damaged: map[string]bool{}, stages: map[string]*Stage{},
	}
	if err := s.begin(); err != nil {
		return nil, errors.Join(boltfile.Explain("open the checkpoint", s.path, err), unlock())
	}
	return s, nil
}

// Close gives the file up. It waits for what is being written. Further calls do nothing.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.unlock == nil {
		return nil
	}
	err := errors.Join(s.file.Load().Close(), s.unlock())
	s.unlock = nil
	return boltfile.Explain("close the checkpoint", s.path, err)
}

// use begins to use a file, and finds out which of its sources can't be.
func (s *Store) use(file *boltfile.File, record storeRecord) {
	old := s.file.Swap(file)
	s.mu.Lock()
	s.record = record
	clear(s.rows)
	clear(s.damaged)
	s.mu.Unlock()
	for _, name := range record.Sources {
		var r sourceRecord
		err := s.view(func(tx *bbolt.Tx) (err error) {
			r, err = getSource(tx, name)
			return err
		})
		if err != nil {
			s.giveUp(name, err)
			continue
		}
		s.mu.Lock()
		s.rows[name] = r.Rows.Count
		s.mu.Unlock()
	}
	if old != nil {
		_ = old.Close() // nothing in it counts any more
	}
}

// giveUp notes that a source can't be read.
func (s *Store) giveUp(source string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damaged[source] {
		return
	}
	s.damaged[source] = true
	s.stats.Damaged++
	s.logger.Warn("checkpoint of a source is damaged and not used; the source is listed afresh",
		"source", source, "path", s.path, "err", err, "remedy", "check the disk: something changed bytes that the bridge wrote")
}

func (s *Store) isDamaged(source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged[source]
}

// noted returns the record of the store.
func (s *Store) noted() storeRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// ClusterUID that was noted; empty if none was.
func (s *Store) ClusterUID() string { return s.noted().ClusterUID }

// Destination returns what SetDestination noted of a sink; empty if it noted nothing.
func (s *Store) Destination(sink string) string { return s.noted().Destinations[sink] }

// Stats returns how the store is doing. It does not wait for a commit.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	stats := s.stats
	stats.Sources = len(s.rows)
	for _, n := range s.rows {
		stats.Rows += int64(n)
	}
	s.mu.Unlock()
	if info, err := os.Stat(s.path); err == nil {
		stats.SizeBytes = info.Size()
	}
	return stats
}

// view runs a read transaction.
func (s *Store) view(read func(*bbolt.Tx) error) error {
	for {
		file := s.file.Load()
		if err := file.View(read); !errors.Is(err, boltfile.ErrClosed) || file == s.file.Load() {
			return err
		}
	}
}

// release counts what was read or written within a transaction.
func (s *Store) release(tx *bbolt.Tx, bytes int) { s.file.Load().Release(tx, int64(bytes)) }

// transaction changes the file, and what the store knows of it once that is on the disk.
type transaction struct {
	*bbolt.Tx
	store  *Store
	codec  rowCodec
	record storeRecord    // is written if it becomes another one
	rows   map[string]int // number of rows of the sources that change; -1: the source goes
}

// write runs a transaction. The caller holds s.writing.
func (s *Store) write(change func(*transaction) error) error {
	t := &transaction{store: s, codec: rowCodec{privacy: s.opts.Privacy}, record: s.record.clone(), rows: map[string]int{}}
	err := s.file.Load().Update(func(tx *bbolt.Tx) error {
		t.Tx = tx
		if err := change(t); err != nil || t.record.equal(s.record) {
			return err
		}
		return putRecord(tx, t.record)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.Errors++
		s.stats.LastError = err.Error()
		return boltfile.Explain("write the checkpoint", s.path, err)
	}
	s.stats.Commits++
	s.stats.LastError, s.stats.LastCommit = "", time.Now()
	s.record = t.record
	for name, n := range t.rows {
		delete(s.damaged, name)
		if s.rows[name] = n; n < 0 {
			delete(s.rows, name)
		}
	}
	return nil
}

// UnknownCluster stands for the uid of a cluster that RBAC forbids to ask.
const UnknownCluster = "unknown"

// BeginCluster says which cluster the objects are of: the uid of its namespace kube-system. If the checkpoint is of
// another one it is quarantined; one of UnknownCluster is taken to be of this cluster.
func (s *Store) BeginCluster(uid string) error {
	if uid == "" {
		return errors.New("checkpoint: empty uid of the cluster")
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	switch noted := s.record; {
	case noted.ClusterUID == uid && noted.ClusterName == s.opts.ClusterName:
		return nil
	case noted.ClusterUID != "" && noted.ClusterUID != UnknownCluster && noted.ClusterUID != uid:
		err := s.quarantine("other-cluster", uid, fmt.Errorf("it is of cluster %q with uid %s, and this is %q with uid %s",
			noted.ClusterName, noted.ClusterUID, s.opts.ClusterName, uid))
		return boltfile.Explain("begin the checkpoint of another cluster", s.path, err)
	}
	return s.write(func(t *transaction) error {
		t.record.ClusterUID, t.record.ClusterName = uid, s.opts.ClusterName
		return nil
	})
}
