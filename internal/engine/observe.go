package engine

import (
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/observe"
)

func (e *Engine) newObserver() *observe.Observer {
	o := &e.options
	observed := observe.Options{
		Informers: e.set.Statuses, Tracker: e.tracker, WithoutTracker: o.AuditOnly, Metrics: e.metrics, Journal: o.Journal,
		State: o.State, LogPlace: o.LogPlace, DetachedSince: o.DetachedSince,
	}
	for _, p := range e.pipelines {
		observed.Sinks = append(observed.Sinks, &observe.Sink{
			Delivery: p.Delivery, Name: p.Name, Kind: p.Kind, Place: p.Place, Buffer: p.Buffer, Audit: p.audit,
		})
	}
	return observe.New(observed)
}

// Status returns the sources, the sinks and the checkpoint. The other fields are zero. It never waits for a handler, a
// destination or a commit, and can be called at any time.
func (e *Engine) Status() control.Status { return e.observer.Status() }

// sample takes the cuts that are due, and a sample of the counters from which rates are computed. The tracker calls it
// once a second.
func (e *Engine) sample() {
	now := time.Now()
	for _, p := range e.pipelines {
		p.progress.cut(now, p.Queue)
	}
	e.observer.Sample(now)
}
