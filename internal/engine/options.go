package engine

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Options are the parts of an [Engine].
type Options struct {
	Cluster string // its name
	// State is the directory of checkpoint, queues, parked events and the socket for commands.
	State string
	HTTP  string // address for /metrics, /healthz and /readyz
	// ShutdownTimeout is how long sinks that still acknowledge events may go on at the end.
	ShutdownTimeout time.Duration
	Build           Build
	Kube            *rest.Config // the way to the API server
	Scopes          []fleet.Scope
	// Watch is the configuration of what is watched, as a string that is compared with the one of the previous process.
	Watch string
	// ManagedFields: the objects keep their managedFields.
	ManagedFields bool
	// Transform changes each object as soon as it is read. Nil: objects stay as they are.
	Transform func(schema.GroupVersionResource, *object.Object)
	Privacy   *checkpoint.Privacy // what rows of the checkpoint may hold in plain text
	Enrichment
	Sinks []Sink
	// OnSettled is called when an event was acknowledged, by the goroutine of its sink. Nil: nothing is called.
	OnSettled func(sink string, m *event.Message)
	Logger    *slog.Logger
}

// Build describes the binary in the metrics.
type Build struct{ Version, Commit string }

// Enrichment configures the index of facts for enriched events, in addition to the needs of the sinks.
type Enrichment struct {
	// FactBytes returns what may become a fact of an object. Nil: all of it.
	FactBytes Bytes
	// Awaited are the resources whose facts are waited for at the start.
	Awaited map[string]bool
}

// Bytes returns the part of an object that may be seen.
type Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)

// Sink is a destination and what its events pass through. The engine owns all of it.
type Sink struct {
	Name  string
	Rules []filter.Rule
	// Seen returns what the filter sees of an object. Nil: all of it.
	Seen        Bytes
	Enrich      enrich.Needs
	Encoder     *event.Encoder
	Buffer      Buffer
	Destination sinks.Sink
	Rejections  sinks.Rejections
	// Closers close connections other than Destination's, at the end and before Destination.
	Closers []func(context.Context) error
	Resync  time.Duration // how often everything is re-sent; 0: on request only
}

// Buffer bounds what waits for a sink.
type Buffer struct {
	Events    int
	Bytes     int64
	DiskBytes int64
	Overflow  Overflow
}

// Overflow says what happens when memory and disk are full.
type Overflow string

// The policies; the empty one is Block.
const (
	Block      Overflow = "block"
	Compact    Overflow = "compact"
	DropOldest Overflow = "drop-oldest"
)

// lossy reports whether the queue drops or merges events when it is full.
func (b Buffer) lossy() bool { return b.Overflow == Compact || b.Overflow == DropOldest }
