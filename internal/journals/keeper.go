package journals

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/deltabridge/deltabridge/internal/pause"
)

// lapsePeriods is the number of periods after which a record that is not renewed has lapsed. A container that starts
// again must be able to renew its record before that.
const lapsePeriods = 6

// Records are the records of all replicas. They are implemented by *Register.
type Records interface {
	Put(ctx context.Context, journal, text string) error
	All(ctx context.Context) (map[string]string, error)
	Remove(ctx context.Context, journal, text string) error
}

// Options configures a Keeper. All fields are required.
type Options struct {
	Records Records
	Replica string        // the name of this replica
	Journal string        // the identity of its journal
	Period  time.Duration // between two renewals
	// Last returns the number of the last event in the journal.
	Last func() uint64
	// Delivered returns the number up to which everything is delivered, or false if that is not known.
	Delivered func() (uint64, bool)
	// Leads reports whether this replica announces which audit events are lost. If several do, gap events are repeated.
	Leads func() bool
	// Announce sends a gap event with the id. It returns true when it is delivered, and is called again until then.
	Announce func(id, why string) bool
	Logger   *slog.Logger
}

// Keeper keeps the record of this replica, and announces what others have lost. Its methods must not be called
// concurrently.
type Keeper struct {
	Options

	mark   *mark
	watch  *watch
	text   string // of the record
	failed rate.Sometimes
}

// NewKeeper returns a Keeper.
func NewKeeper(o Options) *Keeper {
	return &Keeper{
		Options: o, watch: newWatch(lapsePeriods*o.Period, 2*o.Period), failed: rate.Sometimes{Interval: time.Minute},
	}
}

// Begin creates the record, or renews the one of an earlier process with the same journal. The journal must not accept
// events before Begin has returned true. It returns false if ctx ends.
func (k *Keeper) Begin(ctx context.Context) bool {
	for {
		err := k.begin(ctx, time.Now())
		if err == nil {
			return true
		}
		k.failed.Do(func() {
			k.Logger.Warn("cannot accept audit events yet, because it cannot be recorded that this replica has some, retrying",
				"err", err)
		})
		if !pause.For(ctx, min(time.Second, k.Period)) {
			return false
		}
	}
}

func (k *Keeper) begin(ctx context.Context, now time.Time) error {
	all, err := k.Records.All(ctx)
	if err != nil {
		return err
	}
	since := now
	if text, exists := all[k.Journal]; exists {
		since = parse(text).Since
	}
	k.mark = newMark(since)
	return k.renew(ctx, now)
}

// renew renews the record. now is the time, which must be taken before.
func (k *Keeper) renew(ctx context.Context, now time.Time) error {
	last := k.Last()
	delivered, ok := k.Delivered()
	record := Record{Replica: k.Replica, Since: k.mark.undeliveredSince(now, last, delivered, ok), Renewed: now}
	if err := k.Records.Put(ctx, k.Journal, record.String()); err != nil {
		return err
	}
	k.text = record.String()
	return nil
}

// Run renews the record, and announces what other replicas have lost, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	ticker := time.NewTicker(k.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := k.step(ctx, time.Now()); err != nil && ctx.Err() == nil {
			k.failed.Do(func() { k.Logger.Warn("cannot renew the record of this replica's audit events, retrying", "err", err) })
		}
	}
}

// step is called once in each period.
func (k *Keeper) step(ctx context.Context, now time.Time) error {
	if err := k.renew(ctx, now); err != nil {
		return err
	}
	all, err := k.Records.All(ctx)
	if err != nil {
		return err
	}
	delete(all, k.Journal)
	for journal, text := range k.watch.observe(now, all) {
		if !k.Leads() {
			continue
		}
		record := parse(text)
		id := journal + "." + strconv.FormatInt(record.Since.UnixMilli(), 36)
		if !k.Announce(id, lost(record)) {
			continue
		}
		if err := k.Records.Remove(ctx, journal, text); err != nil {
			return err
		}
		k.Logger.Error("audit events may be lost, because a replica is gone", "replica", record.Replica,
			"journal", journal, "acceptedSince", record.Since, "lastSeen", record.Renewed)
	}
	return nil
}

// lost is the text of a gap event.
func lost(r Record) string {
	return fmt.Sprintf("replica %s is gone (last seen at %s). The events that it has accepted since %s and not delivered "+
		"are lost, unless it returns with its disk", r.Replica, r.Renewed.UTC().Format(time.RFC3339),
		r.Since.UTC().Format(time.RFC3339))
}

// End removes the record if everything is delivered. Otherwise, it renews it, and the leader announces a loss. The
// journal must not accept events any more.
func (k *Keeper) End(ctx context.Context) {
	delivered, ok := k.Delivered()
	var err error
	if last := k.Last(); ok && delivered >= last {
		err = k.Records.Remove(ctx, k.Journal, k.text)
	} else {
		k.Logger.Error("stopping with audit events that were not delivered: if the disk of this replica is lost, they are "+
			"lost, and the leader announces this with a gap event", "events", last-min(last, delivered))
		err = k.renew(ctx, time.Now())
	}
	if err != nil {
		k.Logger.Warn("cannot record which audit events were delivered, so the leader may announce a loss", "err", err)
	}
}
