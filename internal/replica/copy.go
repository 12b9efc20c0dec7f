package replica

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// Options configures a Copy.
type Options struct {
	Checkpoint checkpoint.Options // Open sets its Log; its Logger is used for all messages
	Log        statelog.Log       // Close closes it
	// Claim is what this process knows about itself. Open sets the format, and the installation and the cluster of the
	// checkpoint.
	Claim statelog.Claim
	// Patience is how long Eligible lets better prepared processes try first.
	Patience time.Duration

	timing timing // zero except in tests
}

// timing contains the durations that tests shorten.
type timing struct {
	patience time.Duration // for which a call of the writer waits for an acknowledgement
	pause    time.Duration // between two steps of Maintain if nothing is to be written
	check    time.Duration // between two calls of Writer.Check
	retry    time.Duration // the longest pause after an error
	loss     time.Duration // see lossPause
}

func defaultTiming() timing {
	return timing{
		patience: 2 * time.Second,
		pause:    time.Second,
		check:    30 * time.Second,
		retry:    5 * time.Second,
		loss:     15 * time.Second,
	}
}

// Copy is a checkpoint that is shared through a state log. See the package comment for the order of calls.
type Copy struct {
	store   *checkpoint.Store
	log     *patientLog
	journal *journal
	claim   statelog.Claim
	logger  *slog.Logger
	timing  timing
	behind  atomic.Int64
	part    *checkpoint.Unsent // what Maintain sends; nil if that is nothing

	leads      atomic.Bool
	committed  atomic.Int64 // when the last commit was appended or applied, as Unix time in milliseconds; 0 if none was
	detached   atomic.Int64 // committed when the checkpoint was last detached
	wasReady   atomic.Bool  // the copy was complete and up to date since Open
	incomplete atomic.Bool  // the last attempt to follow has failed because the log has lost commits
	missed     atomic.Bool  // the log could not be read after that, so its leader may have gone on without it

	patience time.Duration
	mu       sync.Mutex // guards the following fields
	// configuration is the hash of the configuration that this process has, or would have as the leader.
	configuration string
	refused       time.Time // when Lead first failed because the log has lost commits; zero if it did not
	asked         time.Time // when Eligible was last called
	vacant        time.Time // since when there has been no leader
}

// unknown is the value of Behind if it is not known.
const unknown = -1

// Open opens the checkpoint as checkpoint.Open does. It does not connect to the log. If it fails, the caller must close
// the log.
func Open(o Options) (*Copy, error) {
	c := &Copy{
		claim: o.Claim, configuration: o.Claim.Configuration, patience: o.Patience, timing: cmp.Or(o.timing, defaultTiming()),
		logger: cmp.Or(o.Checkpoint.Logger, slog.New(slog.DiscardHandler)),
	}
	c.behind.Store(unknown)
	c.log = &patientLog{Log: o.Log, patience: c.timing.patience}
	c.journal = &journal{log: c.log, over: errNoTerm, appended: c.noteCommit, detached: c.noteDetached, logger: c.logger}
	o.Checkpoint.Log = c.journal
	var err error
	c.store, err = checkpoint.Open(o.Checkpoint)
	if err != nil {
		return nil, err
	}
	c.journal.copy = c.store.Copy()
	c.claim.Installation = cmp.Or(c.store.Installation(), c.claim.Installation)
	if uid := c.store.ClusterUID(); uid != checkpoint.UnknownCluster {
		c.claim.Cluster = cmp.Or(uid, c.claim.Cluster)
	}
	return c, nil
}

// Store returns the checkpoint. It can be read at any time, and changed while this process leads. Close closes it.
func (c *Copy) Store() *checkpoint.Store { return c.store }

// Behind returns how many commits the copy was behind the log when Follow last read it, and 0 while this process leads.
// It returns -1 if the copy is not complete, if the log cannot be read, or if the process neither follows nor leads. It
// does not block. A standby that is at most 2 commits behind can take over at once.
func (c *Copy) Behind() int { return int(c.behind.Load()) }

// Epoch returns the number of the last term in the log that this process knows, or 0. It can be called at any time.
func (c *Copy) Epoch() uint64 { return c.store.Copy().Point().Claim.Epoch }

// NotReady returns an error until the log contains the whole content for the first time. Until then, this process has
// the only copy. It can be called at any time.
func (c *Copy) NotReady() error {
	if c.store.Copy().Point().Pass.Number == 0 {
		return errors.New("state.log does not contain the whole state yet")
	}
	return nil
}

// isDetached reports whether the checkpoint has changes that the log does not have.
func (c *Copy) isDetached() bool { return c.store.Copy().Point().Unsent != "" }

// DetachedSince returns the time of the last commit that the log has, if the checkpoint has changes that the log does
// not have. Otherwise, it returns the zero time. It can be called at any time.
func (c *Copy) DetachedSince() time.Time {
	if !c.isDetached() {
		return time.Time{}
	}
	return time.UnixMilli(max(1, c.detached.Load())) // if it is not known, because a previous process detached: long ago
}

func (c *Copy) noteCommit() { c.committed.Store(time.Now().UnixMilli()) }

func (c *Copy) noteDetached() { c.detached.Store(c.committed.Load()) }

// resign ends the term of this process. The log is not changed.
func (c *Copy) resign() {
	c.behind.Store(unknown)
	c.leads.Store(false)
	_ = c.store.Exclusively(func() error { c.journal.over = errNoTerm; return nil })
}

// Close closes the checkpoint and the log.
func (c *Copy) Close() error {
	c.resign()
	return errors.Join(c.store.Close(), c.log.Close())
}
