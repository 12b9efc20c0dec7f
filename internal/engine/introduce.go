package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// arrived notes the destination that the sink writes to.
func (p *pipeline) arrived(name string) {
	select {
	case <-p.destinations: // only the last one counts
	default:
	}
	p.destinations <- name
}

// introducing is a listener while a new destination is sent what exists: as an initial list.
type introducing struct {
	*listener
	objects int // that are known, whether they pass the filter or not
}

var _ informer.Restater = (*introducing)(nil)

// MayRestate implements informer.Restater. It waits until what was spilled is delivered.
func (i *introducing) MayRestate() bool {
	return i.ctx.Err() == nil && tracker.Past(i.floor, i.position) && i.pipeline.hasRoom()
}

// OnRestate implements informer.Restater.
func (i *introducing) OnRestate(o *object.Object) {
	i.objects++
	if i.filter.Belongs(o) {
		i.send(event.Event{Type: event.Added, Object: o, InitialList: true, Again: true})
	}
}

// finish says that the initial list of a resource was sent.
func (i *introducing) finish(resourceVersion string, objects int) {
	i.push(event.Event{Type: event.Synced, Again: true, SyncedInfo: &event.SyncedInfo{
		Resource: event.GroupResource(i.resource), ResourceVersion: resourceVersion, Objects: objects,
	}})
}

// introducePause is how long it waits for informers that have not listed yet.
const introducePause = 100 * time.Millisecond

// destinations remembers which destination has what was settled for a sink; *tracker.Tracker does.
type destinations interface {
	Destination(sink string) string
	SetDestination(sink, name string) error
}

// follow sends an initial list to each destination of a sink that is not the one that the checkpoint knows, until the context
// of the resyncer ends. ready reports whether all informers that are to run have listed.
func (r *resyncer) follow(p *pipeline, known destinations, ready func() bool) {
	for {
		select {
		case <-r.ctx.Done():
			return
		case name := <-p.destinations:
			for name != "" {
				name = r.arrive(p, known, name, ready)
			}
		}
	}
}

// partOf marks a destination in the checkpoint that does not have everything yet. What it has, no other destination has: so the sink's next
// destination is another one than before, whichever it is.
const partOf = "part of "

// arrive compares a sink's destination with the one that the checkpoint knows. The checkpoint takes the new one when that
// has everything: a restart before that begins again. If the destination changes meanwhile, it returns that one.
func (r *resyncer) arrive(p *pipeline, known destinations, name string, ready func() bool) (next string) {
	if before := known.Destination(p.name); before != "" && before != name {
		p.log.Warn("destination is another one than before: it is sent what was spilled, and then everything that exists, as an initial list",
			"before", before, "now", name, "waiting", p.queue.Stats().Items)
		r.note(p, known, partOf+name)
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		var objects int
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			objects, err = r.introduce(ctx, p, ready)
		}()
		select {
		case <-done:
		case next = <-p.destinations:
			cancel()
			<-done
			return next
		}
		if err != nil { // the process is ending
			return ""
		}
		p.log.Info("initial list for the new destination was delivered", "destination", name, "objects", objects)
	}
	r.note(p, known, name)
	return ""
}

func (r *resyncer) note(p *pipeline, known destinations, name string) {
	if err := known.SetDestination(p.name, name); err != nil && !r.ended() {
		p.log.Error("destination can't be noted: after a restart it is sent everything again", "err", err)
	}
}

func (r *resyncer) ended() bool { return r.ctx.Err() != nil }

// introduce sends a sink everything that exists, and returns when all of it was delivered, or ctx's error.
func (r *resyncer) introduce(ctx context.Context, p *pipeline, ready func() bool) (objects int, err error) {
	if err := r.begin(ctx, p); err != nil {
		return 0, err
	}
	defer r.end(p)
	introduced := map[*informer.Informer]bool{}
	for {
		all := ready() // before the informers: one that begins later is not left out
		for rest := r.informers(); len(rest) > 0; {
			group := ofOneResource(rest)
			rest = rest[len(group):]
			if !slices.ContainsFunc(group, func(i *informer.Informer) bool { return !introduced[i] }) {
				continue
			}
			n, err := introduceResource(ctx, p, group)
			switch {
			case ctx.Err() != nil:
				return objects, ctx.Err()
			case err != nil: // not listed yet, or gone: look again
				all = false
				continue
			}
			objects += n
			for _, i := range group {
				introduced[i] = true
			}
		}
		if all {
			return objects, p.awaitSettled(ctx)
		}
		if err := pauseFor(ctx, introducePause); err != nil {
			return objects, err
		}
	}
}

// introduceResource sends a sink what the informers of one resource know, and marks the end.
func introduceResource(ctx context.Context, p *pipeline, group []*informer.Informer) (objects int, err error) {
	sources := p.sourcesOf(group)
	if len(sources) == 0 {
		return 0, nil
	}
	for _, s := range sources {
		if !s.informer.HasSynced() {
			return 0, informer.ErrNotSynced
		}
	}
	for _, s := range sources {
		one := &introducing{listener: s.listener}
		if err := s.informer.Restate(ctx, one); err != nil && !errors.Is(err, informer.ErrEnded) {
			return objects, err
		}
		objects += one.objects
	}
	last := sources[len(sources)-1]
	marking := &introducing{listener: last.listener}
	err = last.informer.Turn(ctx, marking, func(resourceVersion string) { marking.finish(resourceVersion, objects) })
	if errors.Is(err, informer.ErrEnded) {
		err = nil
	}
	return objects, err
}

// awaitSettled returns when everything that is in the queue now was settled in one way or another, or ctx's error.
func (p *pipeline) awaitSettled(ctx context.Context) error {
	fence := p.queue.Stats()
	for {
		s := p.queue.Stats()
		gone := s.Acked + s.Dropped + s.Merged - fence.Acked - fence.Dropped - fence.Merged
		if s.Items == 0 || gone >= int64(fence.Items) {
			return nil
		}
		if err := pauseFor(ctx, deliveredPause); err != nil {
			return err
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
