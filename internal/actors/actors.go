package actors

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/audit/actor"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	// Reader is the name under which it is stored up to where audit events are not required any more for joining. It is
	// not a valid name of a sink.
	Reader = "(actors)"
	// MaxBytes is the maximum size of the audit events in memory, and memory is how long they stay there. A change that
	// may be older than what was dropped gets no sole actor, so this is longer than the time between two bookmarks.
	MaxBytes = 32 << 20
	memory   = 2 * time.Minute
	// keep is how long audit events stay in the journal after they were read, so that they can be joined with changes that
	// a restart brings again.
	keep = 5 * time.Minute
	// keepStep is how exactly this is measured.
	keepStep = 10 * time.Second
	// skew is how much the clocks of API servers, and that of the bridge, may differ.
	skew = time.Second
	// tick is the interval at which changes are answered whose wait has ended.
	tick = 20 * time.Millisecond
	// readBytes is how many bytes of events are read from the journal at once.
	readBytes = 1 << 20
	// retry is the pause after a failed attempt to read the journal.
	retry = time.Second
)

// Options configures a [Finder].
type Options struct {
	Journal *audit.Journal
	Tracker *tracker.Tracker // stores up to where audit events are not required any more
	Wait    time.Duration    // how long changes wait for their audit events
	Notify  func()           // is called after changes were answered
	Logger  *slog.Logger
}

// Finder finds out who made the changes that informers deliver. It is safe for concurrent use.
type Finder struct {
	Options

	mu     sync.Mutex // guards the following fields
	joiner *actor.Joiner
	next   uint64  // the number of the first event that was not read
	behind reading // a place in the journal that was its end at a time
	read   []reading
	done   uint64 // up to this number, events are not required any more
}

// reading is up to where the journal was read at a time.
type reading struct {
	last  uint64
	at    time.Time
	since time.Time // when the first of these events was read
}

// New returns a Finder, which continues in the journal where an earlier one has ended.
func New(o Options) *Finder {
	f := &Finder{Options: o}
	f.joiner = actor.New(
		actor.Options{Wait: o.Wait, Keep: max(2*o.Wait, memory), MaxSkew: skew, MaxBytes: MaxBytes},
	)
	f.joiner.Missing(time.Now()) // another engine or process may have had some
	at := auditread.Delivered(o.Tracker.Positions(Reader))
	f.next, _ = o.Journal.Resume(at) // if events are lost, changes have no actors
	f.done = f.next - 1
	return f
}

// ask starts to look for the actors of a change.
func (f *Finder) ask(c actor.Change) *Question {
	q := &Question{kind: c.Kind}
	c.Ref = q
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joiner.Missing(f.Journal.Missing())
	f.answer(f.joiner.Change(c))
	return q
}

// answer must be called with mu held.
func (f *Finder) answer(answers []actor.Answer) {
	for _, answer := range answers {
		q := answer.Change.Ref.(*Question)
		known := Unknown(q.kind == actor.Deleted || q.kind == actor.Finished)
		if answer.By != nil {
			known.By = actorOf(answer.By)
		}
		if answer.Requested != nil && known.Requester != nil {
			requester := actorOf(answer.Requested)
			known.Requester = &requester
		}
		q.Answer(known)
	}
	if len(answers) > 0 {
		f.Notify()
	}
}

func actorOf(a *actor.Actor) event.Actor {
	by := event.Actor{
		Grade: event.ActorSole, User: a.User, Groups: a.Groups, As: a.Impersonated, AsGroups: a.ImpersonatedGroups,
		Agent: a.UserAgent, AuditID: a.AuditID,
	}
	if a.Grade == actor.Proven {
		by.Grade = event.ActorProven
	}
	if n := len(a.SourceIPs); n > 0 { // the client can choose all except the last
		by.Address = a.SourceIPs[n-1]
	}
	return by
}

// Run reads audit events and answers changes until ctx ends.
func (f *Finder) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { f.follow(ctx) })
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.expire(time.Now())
		}
	}
}

// follow reads the journal until ctx ends.
func (f *Finder) follow(ctx context.Context) {
	for {
		records, err := f.Journal.Read(ctx, f.next, readBytes)
		switch {
		case ctx.Err() != nil || errors.Is(err, audit.ErrClosed):
			return
		case err != nil:
			f.Logger.Error("cannot read the audit journal to find out who made changes, retrying", "err", err)
			f.skip()
			select {
			case <-ctx.Done():
				return
			case <-time.After(retry):
			}
		}
		f.join(records, time.Now())
	}
}

// skip continues after events that were removed from the journal.
func (f *Finder) skip() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joiner.Missing(time.Now())
	f.next = max(f.next, f.Journal.Status().Acked+1)
}

// join passes audit events to the joiner.
func (f *Finder) join(records []audit.Record, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range records {
		r := &records[n]
		if r.Err != nil {
			f.joiner.Missing(now)
		} else {
			f.answer(f.joiner.Event(&r.Event, now))
		}
		f.next = r.Last + 1
	}
	if len(records) == 0 {
		return
	}
	latest := reading{last: f.next - 1, at: now, since: now}
	if n := len(f.read) - 1; n >= 0 && now.Sub(f.read[n].since) < keepStep {
		latest.since = f.read[n].since
		f.read = f.read[:n]
	}
	f.read = append(f.read, latest)
}

// expire answers the changes whose wait has ended. Before that, everything is read that the journal had at the end of
// the wait.
func (f *Finder) expire(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.Journal.Status().Last
	switch {
	case last < f.next:
		f.behind = reading{last: last, at: now}
	case f.behind.last < f.next: // what the journal had then has been read
		now, f.behind = f.behind.at, reading{last: last, at: now}
	case now.Sub(f.behind.at) > f.Wait: // it cannot be read
		f.joiner.Missing(now)
		f.behind = reading{last: last, at: now}
	default:
		return
	}
	f.joiner.Missing(f.Journal.Missing())
	f.answer(f.joiner.Expire(now))
}

// Store stores up to where audit events are not required any more, and returns the number up to which this is stored.
func (f *Finder) Store() (upTo uint64, err error) {
	done := f.forget(time.Now())
	err = f.Tracker.AddPositions(map[string]sinks.Positions{Reader: auditread.DeliveredUpTo(f.Journal, done)})
	return done, err
}

// forget returns the number up to which events are not required any more, because they were read long ago, or because
// the journal has no room for them.
func (f *Finder) forget(now time.Time) (upTo uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := keep
	if s := f.Journal.Status(); s.MaxBytes > 0 && s.Bytes > s.MaxBytes/2 {
		kept = 0 // a full journal refuses audit events
	}
	old := 0
	for old < len(f.read) && now.Sub(f.read[old].at) >= kept {
		f.done = f.read[old].last
		old++
	}
	f.read = slices.Delete(f.read, 0, old)
	return f.done
}
