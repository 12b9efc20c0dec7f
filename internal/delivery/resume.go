package delivery

import (
	"fmt"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// owner returns the owner of the cluster's name, for the sink.
func (d *Delivery) owner() sinks.Owner {
	o, t, state := &d.options, d.user.Load().Tracker, sinks.StateFile
	if o.Store.HasLog() || o.Anywhere {
		state = sinks.StateLog
	}
	// Audit events do not depend on what an earlier bridge has sent.
	isNew := !o.Anywhere && t.Destination(o.Sink) == ""
	return sinks.Owner{Cluster: o.Cluster, UID: t.KnownUID(), State: state, New: isNew}
}

// arrived records the destination that the sink writes to. It is called when the sink reports a destination, by the
// goroutine of the drain. Before it returns nil, nothing is sent there.
func (d *Delivery) arrived(name string) error {
	if err := d.user.Load().Arrived(name); err != nil {
		return fmt.Errorf("the destination was not stored: %w", err)
	}
	d.current = name
	select {
	case <-d.Destinations: // only the latest destination counts
	default:
	}
	d.Destinations <- name
	return nil
}

// IsIntroduced reports whether the destination is the one in the checkpoint. Otherwise it may not have its initial
// list. A destination without an identity is always the same one. Only the goroutine of the drain may call it.
func (d *Delivery) IsIntroduced() bool {
	_, identified := d.options.Destination.(sinks.Identified)
	return !identified && d.current == "" || d.user.Load().Tracker.Destination(d.options.Sink) == d.current
}

// ReadBack makes the sink read back what earlier processes wrote, and has its positions stored. It must be called after
// Open and before Start. It has no effect if the sink cannot read back. introducing is the first value of Introducing.
func (d *Delivery) ReadBack(introducing bool) {
	sink, ok := d.options.Destination.(sinks.Resumer)
	if !ok {
		return
	}
	name := d.options.Sink
	sink.Resume(d.user.Load().Tracker.Resumes(name))
	d.Drain.ReadsBack, d.Drain.Fenced = true, sink.Fenced
	d.Introducing.Store(introducing)
	spilled := d.Queue.Last() // the last of the events that earlier processes left on disk, and may have sent
	done := false             // set if nothing that was sent before the last bookmark comes again when that is stored
	d.Drain.Hooks.Between = func() {
		t := d.user.Load().Tracker
		canMove := (t.HasCaughtUp() || sink.FoundNothing()) && d.Queue.Gone(spilled) && !d.Introducing.Load()
		if canMove && t.NeedsBookmark(name) {
			if done {
				sink.Forget()
			}
			taken := d.Queue.Taken()
			var parked []string
			for _, q := range d.Drain.Parked.Queues() {
				parked = append(parked, q.Destination)
			}
			positions := sink.Positions(parked)
			if mutant.On("position-early") {
				_ = t.Resumes(name).Store(positions)
			}
			done = t.Bookmark(name, positions, func() bool { return d.Queue.Gone(taken) }) && len(parked) == 0
		}
	}
}
