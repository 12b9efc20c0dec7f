package observe

import (
	"time"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// Options configures an [Observer].
type Options struct {
	Sinks     []*Sink
	Informers func() []informer.Status
	Tracker   *tracker.Tracker
	// WithoutTracker means that another engine of the process has the metrics of the checkpoint and of the ledgers.
	WithoutTracker bool
	Metrics        *metrics.Metrics
	Journal        *audit.Journal // of audit events; nil if there is none
	State          string         // the directory of the queues
	LogPlace       string         // where the state log is; empty if there is none
	// DetachedSince returns since when only this process has what changes, because the state log is unavailable, or the
	// zero time. It may be nil.
	DetachedSince func() time.Time
}

// Sink is what is observed of a sink.
type Sink struct {
	*delivery.Delivery

	Name string
	// Kind and Place describe the destination for people.
	Kind, Place string
	Buffer      delivery.Buffer
	Audit       *auditread.Reader // nil unless the sink is sent audit events
}

// Observer observes the parts of an engine. It is safe for concurrent use.
type Observer struct {
	Options

	rates rates
}

// New returns an Observer.
func New(o Options) *Observer { return &Observer{Options: o} }
