package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/mapped"
	"go.etcd.io/bbolt"
)

// Errors that callers may want to tell apart.
var (
	// ErrLocked is wrapped by the error of Open if another process uses the checkpoint.
	ErrLocked = errors.New("checkpoint in use")
	// ErrNoCluster is returned by Commit before BeginCluster said whose objects these are.
	ErrNoCluster = errors.New("checkpoint: BeginCluster was not called")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("checkpoint: closed")
)

// Options of Open.
type Options struct {
	Path        string       // the folder of the checkpoint (state.path); it is made if it is missing
	ClusterName string       // for messages; what identifies a cluster is its uid
	Logger      *slog.Logger // nil: none
	Privacy     *Privacy     // what rows may hold in clear; nil: everything
	NoSync      bool         // don't wait for the disk: for tests and benchmarks only
}

// Stats is what there is to say of a store. Counts are since Open.
type Stats struct {
	SizeBytes  int64     // of the file
	Sources    int       // that there are records of
	Rows       int64     // of all sources
	Commits    int64     // transactions that were written
	Errors     int64     // transactions that failed
	Refused    int64     // files set aside
	Damaged    int64     // sources that could not be read and were given up, each once
	LastCommit time.Time // when all that was to be written last was; zero: not yet
	LastError  string    // of the last commit; empty if it succeeded
}

// Store is the durable checkpoint of one bridge. It is safe for concurrent use.
type Store struct {
	path   string // of the file
	opts   Options
	logger *slog.Logger
	unlock func() error

	mu     sync.RWMutex // held for writing by all that changes the file
	swap   sync.RWMutex // held for writing, within mu, while db becomes another: Fetch does not wait for mu
	db     *bbolt.DB    // nil: closed
	record storeRecord  // as it is in the file
	unsure bool         // the last transaction failed: see settle

	resident mapped.Meter

	statsMu sync.Mutex // taken last, never held while waiting
	stats   Stats
	rows    map[string]int  // number of rows by source
	damaged map[string]bool // sources that could not be read, until something is committed of them
	stages  map[string]*Stage
}

// fileName of the checkpoint in its folder.
const fileName = "checkpoint.db"

// Open opens the checkpoint of a folder, or begins one, and keeps others out until Close.
//
// It never fails for what is in the file: one that is corrupt, not a checkpoint, or of a newer format is set aside (see
// SetAside) and an empty one is begun. It fails if the folder can't be used, is full, or another process uses it
// (ErrLocked, after a short wait); the error says what to do.
//
// It reads the whole file, which takes about 0.1 s for 100 MB that the kernel has in memory, and shortens it if most of it is free.
func Open(opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opts.Path, 0o700); err != nil {
		return nil, explain("make the folder of the checkpoint", opts.Path, err)
	}
	unlock, err := lock(filepath.Join(opts.Path, lockName), lockPatience)
	if err != nil {
		return nil, explain("lock the checkpoint", opts.Path, err)
	}
	s := &Store{
		path: filepath.Join(opts.Path, fileName), opts: opts, logger: opts.Logger, unlock: unlock,
		rows: map[string]int{}, damaged: map[string]bool{}, stages: map[string]*Stage{},
	}
	if err := s.begin(); err != nil {
		return nil, errors.Join(explain("open the checkpoint", s.path, err), unlock())
	}
	return s, nil
}

// begin opens the file, or an empty one in its place.
func (s *Store) begin() error {
	if err := removeLeftovers(s.path); err != nil {
		return err
	}
	_, err := os.Lstat(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return s.replace("", s.emptyRecord(""))
	}
	if err != nil {
		return err
	}
	err = s.load()
	if refused, ok := errors.AsType[*refusal](err); ok {
		return s.setAside(refused.reason, refused.err, s.emptyRecord(""))
	}
	return err
}

// load opens a file that is there. The error is a *refusal if it is about what is in the file.
func (s *Store) load() error {
	db, record, size, err := openChecked(s.path, s.opts.NoSync)
	if err != nil {
		return err
	}
	if record.Privacy != s.opts.Privacy.name() {
		if db, record, err = s.rewrite(db, record); err != nil {
			return err
		}
	} else if size.sparse() {
		if db, err = s.compact(db, size); err != nil {
			return err
		}
	}
	s.use(db, record)
	if err := s.dropStaged(); err != nil {
		s.logger.Warn("what is left of an unfinished list stays in the checkpoint", "path", s.path, "error", err)
	}
	if record.ClusterName != s.opts.ClusterName {
		s.logger.Warn("checkpoint was written under another name of the cluster; it counts as long as the cluster's uid is the same",
			"was", record.ClusterName, "is", s.opts.ClusterName, "path", s.path)
	}
	return nil
}

// emptyRecord is that of a file without rows.
func (s *Store) emptyRecord(clusterUID string) storeRecord {
	return storeRecord{ClusterName: s.opts.ClusterName, ClusterUID: clusterUID, Privacy: s.opts.Privacy.name()}
}

// use begins to use a file, and finds out which of its sources can't be.
func (s *Store) use(db *bbolt.DB, record storeRecord) {
	s.swap.Lock()
	s.db, s.record, s.unsure = db, record, false
	s.swap.Unlock()
	s.statsMu.Lock()
	clear(s.rows)
	clear(s.damaged)
	s.statsMu.Unlock()
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
		s.statsMu.Lock()
		s.rows[name] = r.Rows.Count
		s.statsMu.Unlock()
	}
}

// ClusterUID that was noted; empty if none was.
func (s *Store) ClusterUID() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.record.ClusterUID
}

// UnknownCluster stands for the uid of a cluster that RBAC forbids to ask.
const UnknownCluster = "unknown"

// BeginCluster says which cluster the objects are of: the uid of its namespace kube-system. If the checkpoint is of
// another one it is renamed; one of UnknownCluster is taken to be of this cluster. fresh: there is nothing of this cluster yet.
func (s *Store) BeginCluster(uid string) (fresh bool, err error) {
	if uid == "" {
		return false, errors.New("checkpoint: empty uid of the cluster")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return false, ErrClosed
	}
	record := s.record
	record.ClusterUID, record.ClusterName = uid, s.opts.ClusterName
	if noted := s.record.ClusterUID; noted != "" && noted != UnknownCluster && noted != uid {
		err = s.setAside("other-cluster",
			fmt.Errorf("it is of cluster %q with uid %s, and this is %q with uid %s", s.record.ClusterName, noted, s.opts.ClusterName, uid),
			s.emptyRecord(uid))
		return err == nil, explain("begin the checkpoint of another cluster", s.path, err)
	}
	fresh = s.record.ClusterUID == ""
	if record.equal(s.record) {
		return false, nil
	}
	err = s.update(func(tx *bbolt.Tx) error { return putRecord(tx, record) })
	if err != nil {
		return false, explain("write the checkpoint", s.path, err)
	}
	s.record = record
	return fresh, nil
}

// SetAside gives the file another name next to it, made of the reason (such as "restored") and the time, and begins an
// empty one for the same cluster. The file is not deleted: that is for people to do. If it fails everything is as it
// was.
func (s *Store) SetAside(reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return ErrClosed
	}
	record := s.emptyRecord(s.record.ClusterUID)
	record.ClusterName = s.record.ClusterName
	return explain("set the checkpoint aside", s.path, s.setAside(reason, nil, record))
}

// Refused is how many files were set aside since Open, that of Open included.
func (s *Store) Refused() int64 { return s.Stats().Refused }

// Stats tells how the store is doing. It does not wait for a commit.
func (s *Store) Stats() Stats {
	s.statsMu.Lock()
	stats := s.stats
	stats.Sources = len(s.rows)
	for _, n := range s.rows {
		stats.Rows += int64(n)
	}
	s.statsMu.Unlock()
	if info, err := os.Stat(s.path); err == nil {
		stats.SizeBytes = info.Size()
	}
	return stats
}

// count changes the statistics.
func (s *Store) count(change func(*Stats)) {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	change(&s.stats)
}

// Close gives the file up. It waits for what is being written. Further calls do nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	s.swap.Lock()
	db := s.db
	s.db = nil
	s.swap.Unlock()
	return explain("close the checkpoint", s.path, errors.Join(db.Close(), s.unlock()))
}

// view runs a read transaction. The file's bytes are only valid within it. A panic is an error: it means that the file
// changed under bbolt, or that its disk can't be read.
func (s *Store) view(read func(*bbolt.Tx) error) (err error) {
	if s.db == nil {
		return ErrClosed
	}
	defer recoverFault(&err)()
	return s.db.View(read)
}

// update runs a write transaction. The error may come too late: see settle.
func (s *Store) update(write func(*bbolt.Tx) error) error {
	if s.db == nil {
		return ErrClosed
	}
	err := s.settle()
	if err == nil {
		err = s.transact(write)
	}
	s.count(func(stats *Stats) {
		if err != nil {
			stats.Errors++
			stats.LastError = err.Error()
			return
		}
		stats.Commits++
		stats.LastError, stats.LastCommit = "", time.Now()
	})
	return err
}

func (s *Store) transact(write func(*bbolt.Tx) error) (err error) {
	defer recoverFault(&err)()
	s.unsure = true
	if err := s.db.Update(write); err != nil {
		return err
	}
	s.unsure = false
	return nil
}

// settle makes sure, after a transaction that failed, that what the file shows is what is on the disk.
//
// A transaction that failed when its meta page was already written is seen by all that follow, but the disk may still
// hold the one before, and after an error the kernel takes the page for written (https://lwn.net/Articles/752063). The
// next transaction would reuse the pages that only the one before needs, and a crash in its middle would leave a
// mixture. An empty transaction writes nothing but a meta page (NoFreelistSync): when that is on the disk, what it
// refers to is too, because data is synced before meta.
func (s *Store) settle() error {
	if !s.unsure {
		return nil
	}
	return s.transact(func(*bbolt.Tx) error { return nil })
}

// recoverFault is deferred, twice: it makes faults of the memory map panics, and when it is done panics errors.
func recoverFault(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}
}
