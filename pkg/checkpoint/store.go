package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Options configures a Store.
type Options struct {
	Path        string       // directory of the checkpoint (state.path); Open creates it if it is missing
	ClusterName string       // only for messages; a cluster is identified by its uid
	Logger      *slog.Logger // if it is nil, nothing is logged
	Privacy     Privacy      // which data rows may contain in plain text; if it is zero, all data
	NoSync      bool         // skips fsync; only for tests and benchmarks
	Quarantined int64        // initial value of Stats.Quarantined

	Log Log // receives all changes; if it is set, call TakeOver before the first change
}

// Stats contains statistics of a store. The counts begin with Open.
type Stats struct {
	SizeBytes   int64     // size of the file
	Commits     int64     // transactions that succeeded
	Errors      int64     // transactions that failed
	Quarantined int64     // files that were renamed because they were not usable, in addition to Options.Quarantined
	LastCommit  time.Time // zero if nothing was written yet
}

var errOnlyCopy = errors.New("this is a copy of a state log that another replica wrote last, so it may lack changes; " +
	"configure state.log again, and remove it only when this replica is the leader")

// Store is the durable checkpoint of one bridge. It is safe for concurrent use. Reads do not wait for commits.
type Store struct {
	path   string // path of the file
	opts   Options
	logger *slog.Logger
	unlock func() error

	writing sync.Mutex     // held by every method that changes the file
	reading sync.RWMutex   // held for reading by read transactions, and for writing while file is replaced
	file    *boltfile.File // replaced only while both locks are held

	sending sending // used only while writing is held

	mu     sync.Mutex  // never held while waiting for another lock or for the disk
	record storeRecord // content of the store record in the file; changed only while both locks are held
	stats  Stats
}

const (
	fileName     = "checkpoint.db"
	lockName     = "checkpoint.lock"
	lockPatience = 1500 * time.Millisecond
)

// Open opens the checkpoint in a directory, or creates one. Other processes cannot open it until Close is called.
//
// A file that is corrupt or is not a checkpoint is quarantined and replaced by an empty one. Open fails if a newer
// version has written the file (files.NewerFormatError), if the directory cannot be used, if the disk is full, or if
// another process uses the checkpoint (files.ErrLocked, after a short wait). The error explains what to do.
//
// Without a Log, Open fails if the file is a copy of a log that another process wrote last.
//
// Open reads the whole file, and compacts the file if more than half of it is free. Then it does what TakeOver does,
// except if there is a Log: the file is then a copy of what the log contains, which Copy changes until TakeOver.
func Open(opts Options) (*Store, error) {
	if err := os.MkdirAll(opts.Path, 0o700); err != nil {
		return nil, boltfile.Explain("create the directory of the checkpoint", opts.Path, err)
	}
	unlock, err := files.Lock(filepath.Join(opts.Path, lockName), lockPatience)
	if err != nil {
		return nil, boltfile.Explain("lock the checkpoint", opts.Path, err)
	}
	s := &Store{
		path: filepath.Join(opts.Path, fileName), opts: opts, unlock: unlock,
		logger: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
	}
	s.stats.Quarantined = opts.Quarantined
	if err := s.enter(); err != nil {
		return nil, errors.Join(boltfile.Explain("open the checkpoint", s.path, err), unlock())
	}
	return s, nil
}

// enter opens the file. If it fails, the file is closed.
func (s *Store) enter() error {
	if err := s.begin(); err != nil || s.opts.Log != nil {
		return err
	}
	if at := s.record.Point; at.Number > 0 && (at.Partial || !at.Own) {
		return errors.Join(errOnlyCopy, s.file.Close())
	}
	if err := s.TakeOver(); err != nil {
		return errors.Join(err, s.file.Close())
	}
	return nil
}

// TakeOver prepares the content for a process that changes it from now on. With a Log, call it when the log has
// accepted this process as its writer and the file has everything that the log has.
//
// It removes the sources whose initial list was not completed, and makes all rows conform to Options.Privacy.
func (s *Store) TakeOver() error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.writing.Unlock()
	if err := s.sweep(); err != nil {
		return err
	}
	if err := s.conform(); err != nil {
		return err
	}
	return s.change(func(r *storeRecord) { r.Installation = cmp.Or(r.Installation, newInstallation()) })
}

// SetPrivacy replaces Options.Privacy, as if the store were opened again: call TakeOver next. Until it returns, the
// store must not be used for anything but events.
func (s *Store) SetPrivacy(p Privacy) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.opts.Privacy = p
}

// Close closes the file. It waits for running transactions. Further calls do nothing.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.unlock == nil {
		return nil
	}
	err := errors.Join(s.file.Close(), s.unlock())
	s.unlock = nil
	return boltfile.Explain("close the checkpoint", s.path, err)
}

// use replaces the file in use with another file, which has the given store record, and closes the old file.
func (s *Store) use(file *boltfile.File, record storeRecord) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.file != nil {
		_ = s.file.Close() // the content of the old file no longer counts
	}
	s.file = file
	s.mu.Lock()
	s.record = record
	s.mu.Unlock()
}

// noted returns a copy of the store record.
func (s *Store) noted() storeRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// ClusterUID returns the uid that BeginCluster stored; empty if there is none. It does not block.
func (s *Store) ClusterUID() string { return s.noted().ClusterUID }

// Destination returns the name that SetDestination stored for a sink; empty if there is none.
func (s *Store) Destination(sink string) string { return s.noted().Destinations[sink] }

// SinkConfig returns the configuration that Commit stored for a sink. It is empty if there is none.
func (s *Store) SinkConfig(sink string) string { return s.noted().Sinks[sink] }

// Installation returns a random name, which stays the same as long as the checkpoint is not replaced by an empty one.
func (s *Store) Installation() string { return s.noted().Installation }

// Positions returns the positions that Commit and AddPositions stored for a sink. The caller must not change the map.
func (s *Store) Positions(sink string) sinks.Positions { return s.noted().Positions[sink] }

// AllPositions returns the positions of all sinks, including removed ones until the next Commit. The caller must not
// change the maps.
func (s *Store) AllPositions() map[string]sinks.Positions { return s.noted().Positions }

// PausedSince returns when SetPaused stored that a sink was paused. It returns the zero time if the sink is not paused.
func (s *Store) PausedSince(sink string) time.Time { return s.noted().Paused[sink] }

// LostAt returns when events of a sink were found to be lost, or the zero time if the sink was sent that, or none are.
func (s *Store) LostAt(sink string) time.Time { return s.noted().Lost[sink] }

// Stats returns the statistics of the store. It does not wait for transactions.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	stats := s.stats
	s.mu.Unlock()
	if info, err := os.Stat(s.path); err == nil {
		stats.SizeBytes = info.Size()
	}
	return stats
}

// view runs a read transaction, in which view must not be called again.
func (s *Store) view(read func(*bbolt.Tx) error) error {
	s.reading.RLock()
	defer s.reading.RUnlock()
	return s.file.View(read)
}

// release reports bytes that a transaction read or wrote to boltfile, which limits the resident memory of the file's
// map.
func (s *Store) release(tx *bbolt.Tx, bytes int) { s.file.Release(tx, int64(bytes)) }

// UnknownCluster is used as the uid of a cluster if RBAC forbids reading the uid.
const UnknownCluster = "unknown"

// BeginCluster sets the cluster that the objects belong to. uid is the uid of its namespace kube-system. If the
// checkpoint belongs to another cluster, it is quarantined. If its uid is UnknownCluster, it is assumed to belong to
// this cluster.
func (s *Store) BeginCluster(uid string) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.writing.Unlock()
	is, name := s.record, s.opts.ClusterName
	if is.ClusterUID == "" || is.ClusterUID == UnknownCluster || is.ClusterUID == uid {
		return s.change(func(r *storeRecord) { r.ClusterUID, r.ClusterName = uid, name })
	}
	if is.Point.Unsent != "" {
		return errors.New("the checkpoint belongs to another cluster, and state.log does not have all of its changes")
	}
	return s.LeaveCluster(uid)
}

// LeaveCluster quarantines the checkpoint, which belongs to another cluster than uid. Only a function that Exclusively
// calls may call it.
func (s *Store) LeaveCluster(uid string) error {
	is := s.record
	err := s.quarantine("other-cluster", uid, fmt.Errorf(
		"it belongs to cluster %q with uid %s, but this is cluster %q with uid %s",
		is.ClusterName,
		is.ClusterUID,
		s.opts.ClusterName,
		uid,
	))
	return boltfile.Explain("replace the checkpoint of another cluster", s.path, err)
}
