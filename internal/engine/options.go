package engine

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Options configures an [Engine].
type Options struct {
	Cluster string // name of the cluster
	// State is the directory of the queues, the parked events and the control socket.
	State string
	// Store is the checkpoint. The caller closes it after Run. If it has a Log, the process is the writer of this log
	// (checkpoint.Store.TakeOver). The events that wait on disk are then part of the checkpoint too.
	Store *checkpoint.Store
	// ShutdownTimeout is the maximum time that a sink may continue to deliver during shutdown. A sink that acknowledges
	// nothing is stopped earlier.
	ShutdownTimeout time.Duration
	Kube            *rest.Config // connection to the API server
	// Metrics contains the metrics of the engine. Engines that follow one another can share it.
	Metrics *metrics.Metrics
	// Kept contains what an earlier engine has left running for this one. It is nil if there is none.
	Kept   *Kept
	Scopes []fleet.Scope
	// Watch is the watch configuration as a string. The bridge compares it with the string of the previous process.
	Watch string
	// ManagedFields reports whether the objects keep their managedFields.
	ManagedFields bool
	// Transform is called for every object as soon as it is read, and may change it. If it is nil, objects stay as they
	// are.
	Transform func(schema.GroupVersionResource, *object.Object)
	Enrichment
	Sinks []Sink
	// Journal contains the audit events for the sinks with Audit. It is nil if there is none. The caller closes it
	// after Run.
	Journal *audit.Journal
	// AuditOnly means that the engine watches nothing, and delivers only the audit events of its replica, whoever leads.
	// Its Store has no Log.
	AuditOnly bool
	// Linger, if it is not nil, lets the engine continue to deliver after the context of Run has ended, until Linger is
	// closed or no event waits.
	Linger <-chan struct{}
	// Leads is sinks.Drain.Leads of all sinks. It can be called by several goroutines at once.
	Leads func() bool
	// NotReady returns another reason why the bridge is not ready, or nil. It may be nil.
	NotReady func() error
	// LogPlace describes where the state log is. It is empty if there is none.
	LogPlace string
	// DetachedSince returns since when only this process has what changes, because the state log is unavailable, or the
	// zero time. It may be nil.
	DetachedSince func() time.Time
	// OnReady is called once, when Readiness first returns no reasons. It may be nil.
	OnReady func()
	// OnSettled is called by the goroutine of a sink when the destination has acknowledged an event. It may be nil.
	OnSettled func(sink string, m *event.Message)
	Logger    *slog.Logger
}

// Enrichment configures the index of facts for enriched events. The needs of the sinks are configured in Sink.
type Enrichment struct {
	// FactBytes returns the bytes of an object from which facts may be read. If it is nil, all bytes may be used.
	FactBytes Bytes
	// Awaited contains the resources whose facts the informers wait for at the start.
	Awaited map[string]bool
}

// Bytes returns the visible part of an object.
type Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)

// Sink configures a pipeline: a destination, and the steps that events pass before they reach it. The engine owns all
// fields.
type Sink struct {
	Name string
	// Kind and Place describe the destination for people: its kind, such as kafka, and its servers and stream or topic.
	Kind, Place string
	Rules       []filter.Rule
	// Audit means that the sink is sent audit events, and no changes. Rules select them then (filter.CompileAudit).
	Audit bool
	// Seen returns the part of an object that the filter can see. If it is nil, the filter sees the whole object.
	Seen        Bytes
	Enrich      enrich.Needs
	Encoder     *event.Encoder
	Buffer      delivery.Buffer
	Destination sinks.Sink
	Rejections  sinks.Rejections
	// Disconnect closes all connections of the sink, also those of Rejections. It is called at the end of the shutdown.
	Disconnect func(context.Context) error
	Resync     time.Duration // interval between resyncs; if it is 0, the sink is resynced only on request
	Progress   time.Duration // interval between progress events; if it is 0, the sink is sent none
}

// changeRules returns the rules that select changes. A sink that is sent audit events has a rule that selects none. If
// it is sent changes later, this is then a change of its filter.
func (s *Sink) changeRules() []filter.Rule {
	if s.Audit {
		return []filter.Rule{{Namespaces: []string{"!*"}}}
	}
	return s.Rules
}
