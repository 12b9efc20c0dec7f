package config

import (
	"reflect"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// The valid values of Sink.Secrets.
const (
	SecretsFingerprint = "fingerprint"
	SecretsPlain       = "plain"
)

// OverflowCompact is the value of Buffer.Overflow that merges changes.
const OverflowCompact = "compact"

// Sink configures a destination, the events that the destination receives, and their format.
type Sink struct {
	// The name of the sink in logs and metrics. The name has at most 63 lower-case letters, digits and `-`, and begins and
	// ends with a letter or digit. Every sink must have a different name.
	Name string `yaml:"name" required:"true" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" example:"audit"`
	// Which events the sink receives. `changes`: the changes to the objects that `watch` selects. `audit`: the audit events
	// that `audit` receives, and nothing else: see docs/events.md#audit-events. Then `kafka.topic` or `nats.subject` must be
	// set, and keys that are about changes are mistakes.
	Events string `yaml:"events" default:"changes" enum:"changes audit" example:"audit"`
	// Selects the events that the sink receives. An event must pass at least one filter. If there are no filters, the sink
	// receives all events. For audit events, a filter can have `resources`, `namespaces` and `when`.
	Filters []filter.Rule `yaml:"filters"`
	// The data of an event. `object`: the object as the API server sent it, without `managedFields`. For a deletion, this
	// is the last known state. `change`: the old and new states, their difference as a JSON Patch and as a list of paths, and
	// the field managers of the changed fields. `metadata`: only `apiVersion`, `kind` and `metadata`. `debezium`: the old
	// and new states in the form of Debezium's change events, for programs that read those.
	Payload event.Payload `yaml:"payload" default:"object" enum:"object change metadata debezium" example:"change"`
	// The CloudEvents content mode. `binary`: the body is the data, and the attributes that nothing else in the event
	// repeats are headers: see docs/events.md#headers. `structured`: the body is the whole event as JSON. With
	// `kafka.schemaRegistry`, its `format` requires one of them.
	Content event.Content `yaml:"content" default:"binary" enum:"binary structured" example:"structured"`
	// How the bridge sends secret values: the values in Secrets and in the annotation `last-applied-configuration`, and
	// the values that `redact` selects. `fingerprint`: each value is replaced with a keyed fingerprint, which shows
	// whether the value changed but does not reveal the value. `plain`: values are sent unchanged. The filters of the sink
	// see the values as they are sent.
	Secrets string `yaml:"secrets" default:"fingerprint" enum:"fingerprint plain" example:"plain"`
	// The interval at which the bridge re-sends all existing objects to the sink, as events of the type `restated`. A
	// resync restores data that the destination has lost. With 0s, there are no periodic resyncs. Otherwise the minimum is
	// 1m. The command `bridge resync` starts a resync at any time.
	Resync time.Duration `yaml:"resync" default:"0s" min:"0s" example:"6h"`
	// The interval at which the bridge sends progress events: for each resource, the resourceVersion up to which the
	// destination has every change. They arrive in the order of the other events, also while nothing happens, so consumers
	// can use them as watermarks and heartbeats: see docs/events.md#progress. With 0s, there are none. Otherwise the
	// minimum is 1s. On Kafka, they are written to every partition of the topic of the resource.
	Progress time.Duration `yaml:"progress" default:"0s" min:"0s" example:"10s"`
	// What the bridge does with an event that is larger than the destination accepts. `metadata`: sends the event with
	// only the metadata of the object, and marks it as incomplete. `claimCheck`: does the same, and stores the complete
	// data in an object store. `deadLetter`: sends the event where `deadLetter` says, and a gap event
	// instead. `gap`: sends a gap event instead. If even the metadata is too large, the bridge proceeds as with
	// `deadLetter` if `deadLetter` is set, and otherwise as with `gap`.
	Oversize sinks.Outcome `yaml:"oversize" default:"metadata" enum:"metadata claimCheck deadLetter gap" example:"claimCheck"`
	// The object store for `oversize: claimCheck`.
	ClaimCheck *nats.PayloadConfig `yaml:"claimCheck"`
	// Where the bridge sends events that the destination rejects because they are malformed or, with `oversize:
	// deadLetter`, too large. If this is not set, rejected events are not stored. In both cases the bridge sends a gap
	// event instead. On NATS, an event that exceeds the server's `max_payload` fits no subject: use `oversize: claimCheck`.
	DeadLetter *sinks.LetterPlace `yaml:"deadLetter"`
	// Where the bridge sends the sink's control events (gap, synced and progress events). If this is not set, it sends
	// them with the other events.
	ControlEvents *sinks.ControlPlace `yaml:"controlEvents"`
	// Adds information about related objects to events: see docs/events.md.
	Enrich enrich.Needs `yaml:"enrich"`
	// The queue of the sink.
	Buffer       Buffer `yaml:"buffer"`
	Destinations `       yaml:",inline"`
}

// Sink returns the sink with a name, or nil.
func (c *Config) Sink(name string) *Sink {
	n := slices.IndexFunc(c.Sinks, func(s Sink) bool { return s.Name == name })
	if n < 0 {
		return nil
	}
	return &c.Sinks[n]
}

// SinkNames returns the names of sinks.
func SinkNames(sinks []Sink) (names []string) {
	for n := range sinks {
		names = append(names, sinks[n].Name)
	}
	return names
}

// Buffer configures the bounded queue of a sink, which contains the events that the destination has not acknowledged.
type Buffer struct {
	// The maximum number of events in memory.
	Events int `yaml:"events" default:"8192" min:"1" max:"10000000" example:"100000"`
	// The maximum size of the events in memory. A single event that is larger than the maximum is queued alone.
	Bytes int64 `yaml:"bytes" default:"32Mi" min:"64Ki" max:"1Ti" example:"256Mi"`
	// What happens when both the memory and the disk limits are reached. `block`: the bridge stops reading from the API
	// server, even for the other sinks, and no event is lost. `compact`: queued changes to the same object are merged into
	// one. Intermediate states are lost, but deletions and final states are not. `drop-oldest`: the oldest event is
	// dropped and counted, and a gap event is sent. `compact` and `drop-oldest` apply only to events in memory that are
	// not on disk. If older events are on disk, these are the newest events, up to half of `events` and `bytes`.
	Overflow string `yaml:"overflow" default:"block" enum:"block compact drop-oldest" example:"compact"`
	// The part of the queue on disk. The bridge writes events to disk if they do not fit into memory or have waited for
	// more than ten seconds. The files are in the state directory.
	Spill Spill `yaml:"spill"`
}

// Spill configures the part of a queue on disk.
type Spill struct {
	// The maximum size on disk. When this size is reached, `overflow` applies. When the bridge stops, it writes the
	// remaining events from memory to disk even if this exceeds the limit. Events for a topic, partition or subject that
	// accepts no messages are parked in a separate file. The bridge adds events to the separate file only while the total
	// size of this file and the spill is below the limit. A sink therefore uses at most twice this size.
	MaxBytes int64 `yaml:"maxBytes" default:"1Gi" min:"64Ki" max:"16Ti" example:"20Gi"`
}

// Destinations contains the supported destinations, one per field. A sink has exactly one destination.
type Destinations struct {
	// Sends events to NATS JetStream. Set exactly one of `nats`, `kafka` and `stdout`.
	NATS *nats.Config `yaml:"nats" oneOf:"true"`
	// Sends events to Kafka topics.
	Kafka *kafka.Config `yaml:"kafka" oneOf:"true"`
	// Writes events to standard output. It has no keys: write `stdout: {}`.
	Stdout *stdout.Config `yaml:"stdout" oneOf:"true"`
}

// Destination returns the configuration of the sink's destination, including where control events are sent.
func (s *Sink) Destination() sinks.Config {
	destination := s.Destinations.Destination()
	if s.ControlEvents == nil || destination == nil {
		return destination
	}
	return destination.WithControl(s.ControlEvents)
}

// Kind returns the key of the sink's destination: nats, kafka or stdout.
func (d *Destinations) Kind() string {
	kind, _ := d.given()
	return kind
}

// Destination returns the configuration of the sink's destination.
func (d *Destinations) Destination() sinks.Config {
	_, destination := d.given()
	return destination
}

func (d *Destinations) given() (kind string, destination sinks.Config) {
	v := reflect.ValueOf(d).Elem()
	for _, f := range strictyaml.Fields(v.Type()) {
		if field := v.FieldByIndex(f.Index); !field.IsNil() {
			return f.Name, field.Interface().(sinks.Config)
		}
	}
	return "", nil
}
