package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// delivery is the part of a pipeline that sends what the other part has encoded: the queue and the drain, with the
// connection and the parked events. If a changed configuration does not affect it, it goes on running from one engine
// to the next (Kept), so that the sink neither reconnects nor pauses.
type delivery struct {
	// user is the pipeline of the engine that uses the delivery now.
	user atomic.Pointer[pipeline]

	queue   *fifo.Queue[*event.Message]
	drain   *sinks.Drain
	letters *deadletter.Store // nil if the sink has no dead-letter file
	metrics *metrics.Sink
	log     *slog.Logger
	store   *checkpoint.Store

	// destinations contains the latest destination that the sink reported, until the destination is read from the channel.
	destinations chan string
	// current is the latest destination that the sink reported. Only the goroutine of the drain uses it.
	current string
	// introducing is set while a new destination does not have its whole initial list. Until then, the positions in the
	// destination do not advance, so that the next process finds the part of the list that was sent.
	introducing atomic.Bool
	parkedLost  chan struct{} // contains an element when parked events were lost, until announceLost receives it

	// spilled contains the positions of the events that were in the spill at the start, by cluster and source. It is empty
	// if the spill was empty; then the positions in the checkpoint apply.
	spilled map[string]string
	outside bool // whether events wait on disk in files that the state log does not contain

	pausing sync.Mutex // held while the sink is paused or resumed

	delivering context.Context    //nolint:containedctx // the context of drain.Run
	stop       context.CancelFunc // stops the drain immediately
	drained    chan struct{}      // closed when the drain has ended
	failure    error              // of the drain; valid when drained is closed
	// stopSpilling ends the queue, whose error spilled then receives. It is nil until start.
	stopSpilling context.CancelFunc
	written      chan error

	unreadable atomic.Int64 // spilled events that could not be read back
	abandoned  atomic.Int64 // events that could not be queued because the bridge was shutting down
}

// newDelivery returns a delivery without queue and drain. It does no I/O.
func newDelivery(m *metrics.Sink, store *checkpoint.Store, log *slog.Logger) *delivery {
	d := &delivery{
		metrics: m, log: log, store: store,
		destinations: make(chan string, 1),
		parkedLost:   make(chan struct{}, 1),
		drained:      make(chan struct{}),
		written:      make(chan error, 1),
	}
	d.delivering, d.stop = context.WithCancel(context.Background())
	return d
}

// hooks returns the hooks of the drain.
func (d *delivery) hooks() sinks.Hooks {
	hooks := d.metrics.Hooks()
	count := hooks.OnSettled
	hooks.OnSettled = func(m *event.Message, sent time.Time, latency time.Duration) {
		count(m, sent, latency)
		if p := d.user.Load(); p.onSettled != nil {
			p.onSettled(p.Name, m)
		}
	}
	hooks.Progress = func() ([]*event.Message, time.Duration) { return d.user.Load().progressEvents() }
	return hooks
}

// start runs the queue and the drain until end. It has no effect if they run already. Neither ends by itself.
func (d *delivery) start() {
	if d.stopSpilling != nil {
		return
	}
	var spilling context.Context
	spilling, d.stopSpilling = context.WithCancel(context.Background())
	go func() { d.written <- d.queue.Run(spilling) }()
	go func() {
		defer close(d.drained)
		if err := d.drain.Run(d.delivering); !errors.Is(err, context.Canceled) { // left counts the undelivered events
			d.failure = err
		}
	}()
}

// end writes what was not delivered to disk. The drain must have ended.
func (d *delivery) end() error {
	d.stopSpilling()
	return errors.Join(d.failure, <-d.written)
}

// settle records that the sink has settled a message.
func (d *delivery) settle(m *event.Message) {
	if p := d.user.Load(); p.audit != nil {
		p.audit.Settle(m)
	} else {
		p.tracker.Settle(p.Name, m)
	}
}

// spilledEvents returns the number of events in the spill.
func (d *delivery) spilledEvents() int64 {
	events, _, _, _, _ := d.queue.SpillStats()
	return events
}
