package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/pkg/informer"
)

// arrived notes the destination that the sink writes to.
func (p *pipeline) arrived(name string) {
	select {
	case <-p.destinations: // only the last one counts
	default:
	}
	p.destinations <- name
}

// introducePause is how long introduce waits for informers that have not listed yet.
const introducePause = 100 * time.Millisecond

// follow sends an initial list to each destination of a sink that is not the one in the checkpoint, until the context
// of the resyncer ends. ready reports whether all informers have listed.
func (r *resyncer) follow(p *pipeline, ready func() bool) {
	for {
		select {
		case <-r.ctx.Done():
			return
		case name := <-p.destinations:
			for name != "" {
				name = r.arrive(p, name, ready)
			}
		}
	}
}

// partOf marks a destination in the checkpoint that does not have everything yet. No other destination has what this
// one has, so the sink's next destination is a new one, whichever it is.
const partOf = "part of "

// arrive compares a sink's destination with the one in the checkpoint. A new one is noted there when it has everything:
// after a restart before that, the initial list begins again. If the destination changes meanwhile, arrive returns the
// next one.
func (r *resyncer) arrive(p *pipeline, name string, ready func() bool) (next string) {
	if before := p.books.Destination(p.name); before != "" && before != name {
		p.log.Warn(
			"destination has changed: it is sent what was spilled, and then everything that exists, as an initial list",
			"before",
			before,
			"now",
			name,
			"waiting",
			p.queue.Stats().Items,
		)
		r.note(p, partOf+name)
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
	r.note(p, name)
	return ""
}

func (r *resyncer) note(p *pipeline, name string) {
	if err := p.books.SetDestination(p.name, name); err != nil && r.ctx.Err() == nil {
		p.log.Error("destination cannot be noted: after a restart it is sent everything again", "err", err)
	}
}

// introduce sends a sink everything that exists, and returns when all of it was delivered, or ctx's error.
func (r *resyncer) introduce(ctx context.Context, p *pipeline, ready func() bool) (objects int, err error) {
	select {
	case p.restating <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.restating }()
	introduced := map[*informer.Informer]bool{}
	err = wait.PollUntilContextCancel(ctx, introducePause, true, func(ctx context.Context) (all bool, _ error) {
		all = ready() // before the informers: one that begins later is not left out
		for _, group := range byResource(r.informers()) {
			if !slices.ContainsFunc(group, func(i *informer.Informer) bool { return !introduced[i] }) {
				continue
			}
			n, err := p.introduceResource(ctx, group)
			if err != nil { // not listed yet, gone, or ctx ended: look again
				all = false
				continue
			}
			objects += n
			for _, i := range group {
				introduced[i] = true
			}
		}
		return all, nil
	})
	if err != nil {
		return objects, err
	}
	return objects, p.awaitSettled(ctx)
}

// introduceResource sends a sink what the informers of one resource know, and marks the end.
func (p *pipeline) introduceResource(ctx context.Context, group []*informer.Informer) (objects int, err error) {
	sources := p.sourcesOf(group)
	if len(sources) == 0 {
		return 0, nil
	}
	for _, s := range sources {
		if !s.informer.HasSynced() {
			return 0, informer.ErrNotSynced
		}
	}
	r := &restating{initial: true}
	for _, step := range []func(context.Context, []source) error{r.restate, r.finish} {
		if err := step(ctx, sources); err != nil && !errors.Is(err, informer.ErrEnded) {
			return 0, err
		}
	}
	return r.known, nil
}
