package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/audit/actor"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	// ActorsReader is the name under which it is stored up to where audit events are not required any more for joining.
	// It is not a valid name of a sink.
	ActorsReader = "(actors)"
	// actorKeep is how long audit events stay in the journal after they were read, so that they can be joined with changes
	// that a restart brings again.
	actorKeep = 5 * time.Minute
	// actorStep is how exactly this is measured.
	actorStep = 10 * time.Second
	// ActorBytes is the maximum size of the audit events in memory, and actorMemory is how long they stay there. A change
	// that may be older than what was dropped gets no sole actor, so this is longer than the time between two bookmarks.
	ActorBytes  = 32 << 20
	actorMemory = 2 * time.Minute
	// actorSkew is how much the clocks of API servers, and that of the bridge, may differ.
	actorSkew = time.Second
	// actorTick is the interval at which changes are answered whose wait has ended.
	actorTick = 20 * time.Millisecond
)

// actors finds out who made the changes that informers deliver: it joins them with the audit events of the journal. A
// nil *actors is valid and answers nothing.
type actors struct {
	journal *audit.Journal
	tracker *tracker.Tracker
	log     *slog.Logger
	wait    time.Duration
	notify  func() // called after changes were answered

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

// question is a change whose actors are not known yet. A nil *question is a change whose actors are unknown.
type question struct {
	answer atomic.Pointer[event.Actors]
	kind   actor.Kind
}

// known returns the actors, or nil if they are not known yet.
func (q *question) known() *event.Actors {
	if q == nil {
		return nil
	}
	return q.answer.Load()
}

// noActors returns the actors of a change that are unknown.
func noActors(deletion bool) *event.Actors {
	if deletion {
		return &event.Actors{Requester: &event.Actor{}}
	}
	return &event.Actors{}
}

func (q *question) isAnswered() bool { return q == nil || q.known() != nil }

func newActors(
	journal *audit.Journal, wait time.Duration, t *tracker.Tracker, log *slog.Logger, notify func(),
) *actors {
	if wait <= 0 {
		wait = DefaultActorWait
	}
	a := &actors{journal: journal, tracker: t, log: log, wait: wait, notify: notify}
	a.joiner = actor.New(
		actor.Options{Wait: wait, Keep: max(2*wait, actorMemory), MaxSkew: actorSkew, MaxBytes: ActorBytes},
	)
	a.joiner.Missing(time.Now()) // another engine or process may have had some
	at := auditPosition(t.Positions(ActorsReader)[auditDelivered])
	next, _ := journal.Resume(at) // if events are lost, changes have no actors
	a.next, a.done = next, next-1
	return a
}

// ask starts to look for the actors of a change.
func (a *actors) ask(c actor.Change) *question {
	q := &question{kind: c.Kind}
	c.Ref = q
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joiner.Missing(a.journal.Missing())
	a.answer(a.joiner.Change(c))
	return q
}

// answer must be called with mu held.
func (a *actors) answer(answers []actor.Answer) {
	for _, answer := range answers {
		q := answer.Change.Ref.(*question)
		known := noActors(q.kind == actor.Deleted || q.kind == actor.Finished)
		if answer.By != nil {
			known.By = actorOf(answer.By)
		}
		if answer.Requested != nil && known.Requester != nil {
			requester := actorOf(answer.Requested)
			known.Requester = &requester
		}
		q.answer.Store(known)
	}
	if len(answers) > 0 {
		a.notify()
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

// run reads audit events and answers changes until ctx ends.
func (a *actors) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { a.follow(ctx) })
	ticker := time.NewTicker(actorTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.expire(time.Now())
		}
	}
}

// follow reads the journal until ctx ends.
func (a *actors) follow(ctx context.Context) {
	for {
		records, err := a.journal.Read(ctx, a.next, auditRead)
		switch {
		case ctx.Err() != nil || errors.Is(err, audit.ErrClosed):
			return
		case err != nil:
			a.log.Error("cannot read the audit journal to find out who made changes, retrying", "err", err)
			a.skip()
			if !sleep(ctx, auditRetry) {
				return
			}
		}
		a.join(records, time.Now())
	}
}

// skip continues after events that were removed from the journal.
func (a *actors) skip() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joiner.Missing(time.Now())
	a.next = max(a.next, a.journal.Status().Acked+1)
}

// join passes audit events to the joiner.
func (a *actors) join(records []audit.Record, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range records {
		r := &records[n]
		if r.Err != nil {
			a.joiner.Missing(now)
		} else {
			a.answer(a.joiner.Event(&r.Event, now))
		}
		a.next = r.Last + 1
	}
	if len(records) == 0 {
		return
	}
	latest := reading{last: a.next - 1, at: now, since: now}
	if n := len(a.read) - 1; n >= 0 && now.Sub(a.read[n].since) < actorStep {
		latest.since = a.read[n].since
		a.read = a.read[:n]
	}
	a.read = append(a.read, latest)
}

// expire answers the changes whose wait has ended. Before that, everything is read that the journal had at the end of
// the wait.
func (a *actors) expire(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.journal.Status().Last
	switch {
	case last < a.next:
		a.behind = reading{last: last, at: now}
	case a.behind.last < a.next: // what the journal had then has been read
		now, a.behind = a.behind.at, reading{last: last, at: now}
	case now.Sub(a.behind.at) > a.wait: // it cannot be read
		a.joiner.Missing(now)
		a.behind = reading{last: last, at: now}
	default:
		return
	}
	a.joiner.Missing(a.journal.Missing())
	a.answer(a.joiner.Expire(now))
}

// store stores up to where audit events are not required any more, and returns the number up to which this is stored.
func (a *actors) store() (upTo uint64, err error) {
	done := a.forget(time.Now())
	at := sinks.Position{Journal: a.journal.ID(), Next: int64(done) + 1}
	if a.tracker.Positions(ActorsReader)[auditDelivered] != at {
		err = a.tracker.AddPositions(map[string]sinks.Positions{ActorsReader: {auditDelivered: at}})
	}
	return done, err
}

// forget returns the number up to which events are not required any more, because they were read long ago, or because
// the journal has no room for them.
func (a *actors) forget(now time.Time) (upTo uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keep := actorKeep
	if s := a.journal.Status(); s.MaxBytes > 0 && s.Bytes > s.MaxBytes/2 {
		keep = 0 // a full journal refuses audit events
	}
	old := 0
	for old < len(a.read) && now.Sub(a.read[old].at) >= keep {
		a.done = a.read[old].last
		old++
	}
	a.read = slices.Delete(a.read, 0, old)
	return a.done
}
