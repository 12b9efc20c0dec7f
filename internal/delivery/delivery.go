package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Options configures a [Delivery].
type Options struct {
	Sink string // its name
	// Cluster is the name of the cluster, and State the directory of the queue and the parked events.
	Cluster, State string
	Buffer         Buffer
	Destination    sinks.Sink
	Rejections     sinks.Rejections
	// Disconnect closes all connections of the sink, also those of Rejections.
	Disconnect func(context.Context) error
	// Anywhere means that the sink runs in every replica, whoever leads.
	Anywhere bool
	Leads    func() bool // see sinks.Drain.Leads
	Store    *checkpoint.Store
	Metrics  *metrics.Sink
	Logger   *slog.Logger
}

// Buffer sets the bounds of a sink's queue.
type Buffer struct {
	Events    int
	Bytes     int64
	DiskBytes int64
	Overflow  string // Block, Compact or DropOldest
}

// The values of Buffer.Overflow, which define what happens when memory and disk are full.
const (
	Block      = "block"
	Compact    = "compact"
	DropOldest = "drop-oldest"
)

// User is the engine that uses a delivery. The functions are called by the goroutines of the queue and the drain.
type User struct {
	Tracker *tracker.Tracker
	// Settle records that the sink has settled a message.
	Settle func(*event.Message)
	// OnSettled is called when the destination has acknowledged a message. It may be nil.
	OnSettled func(sink string, m *event.Message)
	// Arrived is called before anything is sent to a destination. After an error, it is called again.
	Arrived func(destination string) error
	// Progress is sinks.Hooks.Progress.
	Progress func() (events []*event.Message, again time.Duration)
	// Lost returns the gap events that replace events that cannot be read back from the disk. at is when that was found.
	// The same arguments give gap events with the same ids.
	Lost func(l fifo.Loss, at time.Time) []*event.Message
}

// Delivery is the part of a sink that sends what has been encoded. If a changed configuration does not affect it, it
// goes on running from one engine to the next, so that the sink neither reconnects nor pauses.
type Delivery struct {
	options Options
	user    atomic.Pointer[User]

	// Queue and Drain are nil before Open.
	Queue   *fifo.Queue[*event.Message]
	Drain   *sinks.Drain
	Metrics *metrics.Sink
	Log     *slog.Logger

	// Destinations contains the latest destination that the sink reported, until the destination is read from the channel.
	Destinations chan string
	// Introducing is set while a new destination does not have its whole initial list. Until then, the positions in the
	// destination do not advance, so that the next process finds the part of the list that was sent.
	Introducing atomic.Bool

	// Spilled contains the positions of the events that were in the spill at the start, by Mark. It is empty if the spill
	// was empty; then the positions in the checkpoint apply.
	Spilled    map[string]string
	OutsideLog bool // whether events wait on disk in files that the state log does not contain

	Unreadable atomic.Int64 // spilled events that could not be read back
	Abandoned  atomic.Int64 // events that could not be queued because the bridge was shutting down

	current string     // the latest destination that the sink reported; only the goroutine of the drain uses it
	pausing sync.Mutex // held while the sink is paused or resumed

	losing sync.Mutex    // held while the checkpoint notes a loss, or that it was announced
	lost   chan struct{} // contains an element while gap events for the note must be queued

	delivering context.Context    //nolint:containedctx // the context of Drain.Run
	stop       context.CancelFunc // stops the drain immediately
	drained    chan struct{}      // closed when the drain has ended
	failure    error              // of the drain; valid when drained is closed
	// stopSpilling ends the queue, whose error written then receives. It is nil until Start.
	stopSpilling context.CancelFunc
	written      chan error
}

// New returns a delivery without queue and drain, which Open adds. It does no I/O.
func New(o Options) *Delivery {
	d := &Delivery{
		options: o, Metrics: o.Metrics, Log: o.Logger,
		Destinations: make(chan string, 1),
		lost:         make(chan struct{}, 1),
		drained:      make(chan struct{}),
		written:      make(chan error, 1),
	}
	return d
}

// SinkName returns the name of the sink.
func (d *Delivery) SinkName() string { return d.options.Sink }

// Use sets the user. It must be called before Open, and by each later engine.
func (d *Delivery) Use(u User) { d.user.Store(&u) }

// Open opens the files of the sink, and creates the queue and the drain. The sink is paused if it was paused when the
// previous process ended.
func (d *Delivery) Open() error {
	o := &d.options
	if err := d.openQueue(); err != nil {
		return fmt.Errorf("sink %s: %w", o.Sink, err)
	}
	parking, err := d.openParked()
	if err != nil {
		return fmt.Errorf("sink %s: %w", o.Sink, err)
	}
	d.delivering, d.stop = context.WithCancel(context.Background())
	d.Drain = &sinks.Drain{
		Sink: &sinks.Guard{
			Sink: o.Destination, Name: o.Sink, Logger: d.Log, OnDestination: d.arrived, Owner: d.owner,
		},
		Queue:      d.Queue,
		Rejections: o.Rejections,
		Parked:     parking,
		Hooks:      d.hooks(),
		Leads:      o.Leads,
		Logger:     d.Log,
	}
	d.restorePause()
	return nil
}

// hooks returns the hooks of the drain.
func (d *Delivery) hooks() sinks.Hooks {
	hooks := d.Metrics.Hooks()
	count := hooks.OnSettled
	hooks.OnSettled = func(m *event.Message, sent time.Time, latency time.Duration) {
		count(m, sent, latency)
		if u := d.user.Load(); u.OnSettled != nil {
			u.OnSettled(d.options.Sink, m)
		}
	}
	hooks.Progress = func() ([]*event.Message, time.Duration) { return d.user.Load().Progress() }
	return hooks
}

// Start runs the queue and the drain until Finish. It has no effect if they run already. Neither ends by itself.
func (d *Delivery) Start() {
	if d.stopSpilling != nil {
		return
	}
	var spilling context.Context
	spilling, d.stopSpilling = context.WithCancel(context.Background())
	go func() {
		ended := make(chan struct{})
		var announcing sync.WaitGroup
		announcing.Go(func() { d.announceLosses(ended) })
		err := d.Queue.Run(spilling)
		close(ended)
		announcing.Wait()
		d.written <- err
	}()
	go func() {
		defer close(d.drained)
		if err := d.Drain.Run(d.delivering); !errors.Is(err, context.Canceled) { // Left counts the undelivered events
			d.failure = err
		}
	}()
}

// settle records that the sink has settled a message.
func (d *Delivery) settle(m *event.Message) { d.user.Load().Settle(m) }

// SpilledEvents returns the number of events in the spill.
func (d *Delivery) SpilledEvents() int64 { return d.Queue.SpillStats().Items }

// Left returns the number of undelivered events that are on disk, and the number of undelivered events that are not
// stored anywhere.
func (d *Delivery) Left() (onDisk, lost int64) {
	lost = int64(d.Queue.Stats().Items) + d.Abandoned.Load()
	onDisk = d.SpilledEvents()
	return onDisk, max(0, lost-onDisk)
}

// Parked returns the number of parked events.
func (d *Delivery) Parked() (events int64) {
	for _, q := range d.Drain.Parked.Queues() {
		events += int64(q.Events)
	}
	return events
}
