package replica

import (
	"cmp"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// Options configures a Copy.
type Options struct {
	Checkpoint checkpoint.Options // Open sets its Log; its Logger is used for all messages
	Log        statelog.Log       // Close closes it
	// Claim contains what this process knows about itself. Without Cluster, the log of another cluster is not detected.
	// Open sets Format.
	Claim statelog.Claim

	timing timing // zero except in tests
}

// timing contains the durations that tests shorten.
type timing struct {
	patience time.Duration // for which a call of the writer waits for an acknowledgement
	pause    time.Duration // between two steps of Maintain if nothing is to be written
	check    time.Duration // between two calls of Writer.Check
	retry    time.Duration // the longest pause after an error
}

func defaultTiming() timing {
	return timing{patience: 2 * time.Second, pause: time.Second, check: 30 * time.Second, retry: 5 * time.Second}
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
}

// unknown is the value of Behind if it is not known.
const unknown = -1

// Open opens the checkpoint as checkpoint.Open does. It does not connect to the log. If it fails, the caller must close
// the log.
func Open(o Options) (*Copy, error) {
	c := &Copy{
		claim: o.Claim, timing: cmp.Or(o.timing, defaultTiming()),
		logger: cmp.Or(o.Checkpoint.Logger, slog.New(slog.DiscardHandler)),
	}
	c.claim.Format = checkpoint.Format
	c.behind.Store(unknown)
	c.log = &patientLog{Log: o.Log, patience: c.timing.patience}
	c.journal = &journal{log: c.log, over: errNoTerm}
	o.Checkpoint.Log = c.journal
	var err error
	c.store, err = checkpoint.Open(o.Checkpoint)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Store returns the checkpoint. It can be read at any time, and changed while this process leads. Close closes it.
func (c *Copy) Store() *checkpoint.Store { return c.store }

// Behind returns how many commits the copy was behind the log when Follow last read it, and 0 while this process leads.
// It returns -1 if the copy is not complete, if the log cannot be read, or if the process neither follows nor leads. It
// does not block. A standby that is at most 2 commits behind can take over at once.
func (c *Copy) Behind() int { return int(c.behind.Load()) }

// resign ends the term of this process. The log is not changed.
func (c *Copy) resign() {
	c.behind.Store(unknown)
	_ = c.store.Exclusively(func() error { c.journal.over = errNoTerm; return nil })
}

// Close closes the checkpoint and the log.
func (c *Copy) Close() error {
	c.resign()
	return errors.Join(c.store.Close(), c.log.Close())
}
