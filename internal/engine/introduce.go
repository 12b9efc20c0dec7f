package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/pkg/informer"
)

// storePause is the interval at which arrive tries again to store the name of a destination.
const storePause = time.Second

// introducePause is the interval at which introduce looks again for informers that have not finished their list.
const introducePause = 100 * time.Millisecond

// follow sends an initial list to every destination of a sink that differs from the one in the checkpoint. It runs
// until the context of the resyncer ends. ready reports whether all informers have finished their lists.
func (r *resyncer) follow(p *pipeline, ready func() bool) {
	var introduction sync.WaitGroup
	defer introduction.Wait()
	cancel := func() {}
	for {
		select {
		case <-r.ctx.Done():
			return
		case name := <-p.Destinations:
			cancel() // the initial list for the previous destination, if it is not complete
			introduction.Wait()
			var ctx context.Context
			ctx, cancel = context.WithCancel(r.ctx)
			introduction.Go(func() {
				defer cancel()
				r.arrive(ctx, p, name, ready)
			})
		}
	}
}

// While a destination has received only a part of the initial list, its name in the checkpoint follows partOf, and is
// followed by inDelivery and the name of the list. This equals no destination, so the sink's next destination counts as
// new in any case.
const (
	partOf     = "part of "
	inDelivery = ", delivery "
)

// arrive sends an initial list to a destination that differs from the one in the checkpoint, and records the new
// destination in the checkpoint when the whole list was delivered. If the bridge is restarted before that, it sends the
// list again under the same name, so that the sink recognizes what the destination already has.
func (r *resyncer) arrive(ctx context.Context, p *pipeline, name string, ready func() bool) {
	logged := false
	check := func(err error) {
		if err != nil && r.ctx.Err() == nil && !logged {
			logged = true
			p.Log.Error("cannot store the name of the destination, retrying: if the bridge is restarted before it is stored, "+
				"all objects are sent to the destination again", "err", err)
		}
	}
	delivery, err := p.leave(name)
	check(err)
	if delivery != "" {
		p.Log.Info("sending the initial list for the new destination", "destination", name)
		objects, err := r.introduce(ctx, p, delivery, ready)
		if err != nil { // the destination has changed again, or the process is shutting down
			return
		}
		p.Log.Info("initial list for the new destination was delivered", "destination", name, "objects", objects)
	}
	err = wait.PollUntilContextCancel(ctx, storePause, true, func(context.Context) (bool, error) {
		err := p.tracker.SetDestination(p.Name, name)
		check(err)
		return err == nil, nil
	})
	if err == nil {
		p.Introducing.Store(false)
	}
}

// leave compares a sink's destination with the one in the checkpoint. If the checkpoint names another one, leave
// records that this one is left, and returns the name of the initial list for the new destination. It is called before
// anything is sent to a destination, even if the API server has not answered: the events that one destination is sent
// are missing in the other one, to which a later configuration can return.
func (p *pipeline) leave(name string) (delivery string, err error) {
	before := p.tracker.Destination(p.Name)
	if before == "" || before == name || p.audit != nil {
		return "", nil
	}
	p.Introducing.Store(true)
	delivery, begun := strings.CutPrefix(before, partOf+name+inDelivery)
	if begun {
		return delivery, nil
	}
	delivery = randomName()
	if err = p.tracker.SetDestination(p.Name, partOf+name+inDelivery+delivery); err == nil {
		p.Log.Warn("destination has changed, sending it the queued events and then an initial list of all objects",
			"before", before, "now", name, "waiting", p.Queue.Stats().Items)
	}
	return delivery, err
}

// introduce sends a sink all objects as an initial list, under the name delivery. It returns when all of them are
// settled, or returns ctx's error if ctx ends first.
func (r *resyncer) introduce(
	ctx context.Context, p *pipeline, delivery string, ready func() bool,
) (objects int, err error) {
	select {
	case p.restating <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.restating }()
	introduced := map[*listener]bool{}
	err = wait.PollUntilContextCancel(ctx, introducePause, true, func(ctx context.Context) (all bool, _ error) {
		all = ready() // ready is called first, so an informer that starts between the two calls is in the list
		for _, sources := range p.listeners(r.informers()) {
			if !slices.ContainsFunc(sources, func(l *listener) bool { return !introduced[l] }) {
				continue
			}
			n, err := p.introduceResource(ctx, sources, delivery)
			if err != nil { // the informer has not finished its list or has ended, or ctx has ended: try again
				all = false
				continue
			}
			objects += n
			for _, l := range sources {
				introduced[l] = true
			}
		}
		return all, nil
	})
	if err != nil {
		return objects, err
	}
	return objects, p.awaitSettled(ctx, func() error { return nil })
}

// introduceResource sends a sink the objects that the informers of one resource know, followed by a synced event.
func (p *pipeline) introduceResource(
	ctx context.Context, sources []*listener, delivery string,
) (objects int, err error) {
	if slices.ContainsFunc(sources, func(l *listener) bool { return !l.informer.HasSynced() }) {
		return 0, informer.ErrNotSynced
	}
	r := &restating{initial: delivery}
	for _, step := range []func(context.Context, []*listener) error{r.restate, r.finish} {
		if err := step(ctx, sources); err != nil && !errors.Is(err, informer.ErrEnded) {
			return 0, err
		}
	}
	return r.known, nil
}
