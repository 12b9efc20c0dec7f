package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
)

// Options of Open.
type Options struct {
	Path        string       // the directory of the checkpoint (state.path); Open makes it if it is missing
	ClusterName string       // for messages; the uid identifies a cluster
	Logger      *slog.Logger // nil: nothing is logged
	Privacy     *Privacy     // what rows may hold in plain text; nil: everything
	NoSync      bool         // do not wait for the disk: for tests and benchmarks only
}

// Stats describe a store. Counts begin with Open.
type Stats struct {
	SizeBytes   int64     // of the file
	Commits     int64     // transactions that were written
	Errors      int64     // transactions that failed
	Quarantined int64     // files that were renamed because they could not be used
	LastCommit  time.Time // zero: nothing was written yet
}

// Store is the durable checkpoint of one bridge. It is safe for concurrent use. Reads do not wait for writes.
type Store struct {
	path    string // of the file
	opts    Options
	privacy Privacy
	logger  *slog.Logger
	unlock  func() error

	writing sync.Mutex // held by everything that changes the file
	file    atomic.Pointer[boltfile.File]

	mu     sync.Mutex  // never held while waiting
	record storeRecord // as it is in the file; it changes with both locks held
	stats  Stats
}

const (
	fileName     = "checkpoint.db"
	lockName     = "checkpoint.lock"
	lockPatience = 1500 * time.Millisecond
)

// Open opens the checkpoint of a directory, or begins one, and keeps other processes out until Close.
//
// It never fails because of what is in the file: a file that is corrupt, not a checkpoint, or of a newer format is
// quarantined, and an empty one is begun. It fails if the directory cannot be used, is full, or another process uses it
// (files.ErrLocked, after a short wait); the error says what to do.
//
// It reads the whole file, and compacts it if most of it is free.
func Open(opts Options) (*Store, error) {
	if err := os.MkdirAll(opts.Path, 0o700); err != nil {
		return nil, boltfile.Explain("make the directory of the checkpoint", opts.Path, err)
	}
	unlock, err := files.Lock(filepath.Join(opts.Path, lockName), lockPatience)
	if err != nil {
		return nil, boltfile.Explain("lock the checkpoint", opts.Path, err)
	}
	s := &Store{
		path: filepath.Join(opts.Path, fileName), opts: opts, unlock: unlock,
		logger: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
	}
	if opts.Privacy != nil {
		s.privacy = *opts.Privacy
	}
	if err := s.begin(); err != nil {
		return nil, errors.Join(boltfile.Explain("open the checkpoint", s.path, err), unlock())
	}
	return s, nil
}

// Close closes the file. It waits for transactions. Further calls do nothing.
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

// use puts a file, whose store record is given, in the place of the one in use.
func (s *Store) use(file *boltfile.File, record storeRecord) {
	old := s.file.Swap(file)
	s.mu.Lock()
	s.record = record
	s.mu.Unlock()
	if old != nil {
		_ = old.Close() // its content no longer counts
	}
}

// noted returns the record of the store.
func (s *Store) noted() storeRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// ClusterUID returns the uid that BeginCluster noted; empty if it noted none. It waits for nothing.
func (s *Store) ClusterUID() string { return s.noted().ClusterUID }

// Destination returns what SetDestination noted of a sink; empty if it noted nothing.
func (s *Store) Destination(sink string) string { return s.noted().Destinations[sink] }

// Stats returns how the store is doing. It does not wait for transactions.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	stats := s.stats
	s.mu.Unlock()
	if info, err := os.Stat(s.path); err == nil {
		stats.SizeBytes = info.Size()
	}
	return stats
}

// view runs a read transaction. If the file is replaced meanwhile, it runs read again.
func (s *Store) view(read func(*bbolt.Tx) error) error {
	for {
		file := s.file.Load()
		if err := file.View(read); !errors.Is(err, boltfile.ErrClosed) || file == s.file.Load() {
			return err
		}
	}
}

// release counts bytes that were read or written within a transaction.
func (s *Store) release(tx *bbolt.Tx, bytes int) { s.file.Load().Release(tx, int64(bytes)) }

// transaction changes a file and its store record.
type transaction struct {
	*bbolt.Tx
	store  *Store
	codec  rowCodec
	record storeRecord
}

// write runs a transaction. The caller holds s.writing.
func (s *Store) write(change func(*transaction) error) error {
	t := &transaction{store: s, codec: rowCodec{privacy: s.privacy}, record: s.record.clone()}
	err := s.file.Load().Update(func(tx *bbolt.Tx) error {
		t.Tx = tx
		if err := change(t); err != nil || reflect.DeepEqual(t.record, s.record) {
			return err
		}
		return putJSON(tx, bucketStore, keyStore, t.record)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.Errors++
		return boltfile.Explain("write the checkpoint", s.path, err)
	}
	s.stats.Commits++
	s.stats.LastCommit = time.Now()
	s.record = t.record
	return nil
}

// UnknownCluster is the uid of a cluster whose uid RBAC forbids to read.
const UnknownCluster = "unknown"

// BeginCluster says which cluster the objects are of: the uid of its namespace kube-system. A checkpoint of another
// cluster is quarantined; one of UnknownCluster is taken to be of this cluster.
func (s *Store) BeginCluster(uid string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	noted := s.record
	if noted.ClusterUID != "" && noted.ClusterUID != UnknownCluster && noted.ClusterUID != uid {
		err := s.quarantine("other-cluster", uid, fmt.Errorf("it is of cluster %q with uid %s, and this is %q with uid %s",
			noted.ClusterName, noted.ClusterUID, s.opts.ClusterName, uid))
		return boltfile.Explain("begin the checkpoint of another cluster", s.path, err)
	}
	if noted.ClusterUID == uid && noted.ClusterName == s.opts.ClusterName {
		return nil
	}
	return s.write(func(t *transaction) error {
		t.record.ClusterUID, t.record.ClusterName = uid, s.opts.ClusterName
		return nil
	})
}
