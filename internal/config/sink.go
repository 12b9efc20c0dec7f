package config

import (
	"reflect"
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

// Values of Sink.Secrets.
const (
	SecretsFingerprint = "fingerprint"
	SecretsPlain       = "plain"
)

// OverflowCompact is the Buffer.Overflow that merges changes.
const OverflowCompact = "compact"

// Sink is a destination, with the events that it receives and their format.
type Sink struct {
	// The name of the sink in logs and metrics. It has at most 63 lower-case letters, digits and `-`, and begins and
	// ends with a letter or digit. Each sink has a different name.
	Name string `yaml:"name" required:"true" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" example:"audit"`
	// Which events the sink receives: those that at least one filter passes. If there are no filters, the sink receives
	// all events.
	Filters []filter.Rule `yaml:"filters"`
	// The data of an event. `object`: the object as the API server sent it, without `managedFields`; a deletion has the
	// last known state. `change`: the old and the new state, their difference as a patch and as a list of paths, and
	// the field managers of the changed fields. `metadata`: only `apiVersion`, `kind` and `metadata`.
	Payload event.Payload `yaml:"payload" default:"object" enum:"object change metadata" example:"change"`
	// The format of the patch with `payload: change`. `json`: a list of operations (JSON Patch, RFC 6902). `merge`: a
	// partial document (JSON Merge Patch, RFC 7386). A merge patch replaces whole lists, and cannot distinguish a key
	// that became null from a key that was removed.
	Patch event.Patch `yaml:"patch" default:"json" enum:"json merge" example:"merge"`
	// The CloudEvents content mode. `binary`: the attributes are headers, and the body is the data. `structured`: the
	// body is the whole event as JSON.
	Content event.Content `yaml:"content" default:"binary" enum:"binary structured" example:"structured"`
	// How secret values are sent: the values in Secrets, in the annotation `last-applied-configuration`, and those that
	// `redact` names. `fingerprint`: each value is replaced with a keyed fingerprint, which shows that a value changed,
	// but not the value. `plain`: values are sent unchanged. The filters of the sink see what is sent.
	Secrets string `yaml:"secrets" default:"fingerprint" enum:"fingerprint plain" example:"plain"`
	// The interval at which the sink receives all existing objects again, as events of the type `restated`. A resync
	// restores data that the destination has lost. With 0s, the bridge never resyncs by itself. Otherwise the minimum
	// is 1m. `bridge resync` starts a resync at any time.
	Resync time.Duration `yaml:"resync" default:"0s" min:"0s" example:"6h"`
	// What happens to an event that is larger than the destination accepts. `metadata`: the event is sent with only the
	// metadata of the object, and says so. `claimCheck`: the same, and the complete data is stored in an object store.
	// `deadLetter`: the event is stored as `deadLetter` says, and a gap event is sent instead. `gap`: a gap event is
	// sent instead. If even the metadata is too large, the event is handled as with `deadLetter` if that is set,
	// otherwise as with `gap`.
	Oversize sinks.Outcome `yaml:"oversize" default:"metadata" enum:"metadata claimCheck deadLetter gap" example:"claimCheck"`
	// The object store for `oversize: claimCheck`.
	ClaimCheck *nats.PayloadConfig `yaml:"claimCheck"`
	// Where to store events that the destination rejects because they are malformed or, with `oversize: deadLetter`,
	// too large. If it is not set, they are not stored. In both cases a gap event is sent instead.
	DeadLetter *DeadLetter `yaml:"deadLetter"`
	// Information about related objects that is added to events: see docs/events.md.
	Enrich Enrich `yaml:"enrich"`
	// The queue of the sink.
	Buffer       Buffer `yaml:"buffer"`
	Destinations `       yaml:",inline"`
}

// Values of Enrich.As.
const (
	EnrichAttributes = "attributes"
	EnrichData       = "data"
)

// Enrich adds information about related objects to events. The bridge sends no requests for this. It watches the
// required resources in the namespaces of `watch`, and does not send events for those that `watch` does not select.
type Enrich struct {
	enrich.Needs `yaml:",inline"`
	// Where the information is added. `attributes`: in attributes of the event, which are headers. `data`: in the data,
	// as `context`. `data` requires `payload: change` or `payload: metadata`.
	As string `yaml:"as" default:"attributes" enum:"attributes data" example:"data"`
}

// Buffer is the bounded queue of a sink. It holds the events that the destination has not acknowledged.
type Buffer struct {
	// The maximum number of events in memory.
	Events int `yaml:"events" default:"8192" min:"1" max:"10000000" example:"100000"`
	// The maximum size of the events in memory. A single event that is larger is queued alone.
	Bytes int64 `yaml:"bytes" default:"32Mi" min:"64Ki" max:"1Ti" example:"256Mi"`
	// What happens when the memory and the disk are full. `block`: reading from the API server waits, also for the
	// other sinks, and no event is lost. `compact`: queued changes of one object are merged into one; intermediate
	// states are lost, but not deletions and final states. `drop-oldest`: the oldest event is dropped and counted, and
	// a gap event is sent. `compact` and `drop-oldest` apply to the newer half of the events and bytes in memory.
	Overflow string `yaml:"overflow" default:"block" enum:"block compact drop-oldest" example:"compact"`
	// The part of the queue on disk. The bridge writes events to disk that do not fit into memory, and events that wait
	// for more than ten seconds. The files are in the state directory.
	Spill Spill `yaml:"spill"`
}

// Spill is the part of a queue on disk.
type Spill struct {
	// The maximum size on disk. When it is reached, `overflow` applies. When the bridge stops, it writes the events
	// that are left in memory even if they exceed the limit. Events for a topic, partition or subject that accepts no
	// messages are parked in a separate file. The bridge adds to this file only while it and the spill together are
	// smaller than the limit. A sink therefore uses at most twice this size.
	MaxBytes int64 `yaml:"maxBytes" default:"1Gi" min:"64Ki" max:"16Ti" example:"20Gi"`
}

// DeadLetter is where rejected events are stored. Set exactly one of `file`, `topic` and `subject`.
type DeadLetter struct {
	// Store the events in the state directory, for `bridge dead-letters`.
	File              *DeadLetterFile `yaml:"file"    oneOf:"true"`
	sinks.LetterPlace `                yaml:",inline"`
}

// DeadLetterFile limits the dead letters in the state directory.
type DeadLetterFile struct {
	// The maximum size of the dead letters. Further dead letters are lost: they are counted and logged as errors, and a
	// gap event is sent.
	MaxBytes int64 `yaml:"maxBytes" default:"64Mi" min:"1Mi" max:"16Ti" example:"1Gi"`
}

// Destinations are the kinds of destinations. A sink has exactly one. Another kind is another field here.
type Destinations struct {
	// Sends events to NATS JetStream. Set exactly one of `nats`, `kafka` and `stdout`.
	NATS *nats.Config `yaml:"nats" oneOf:"true"`
	// Sends events to Kafka topics.
	Kafka *kafka.Config `yaml:"kafka" oneOf:"true"`
	// Writes events to standard output. It has no keys: write `stdout: {}`.
	Stdout *stdout.Config `yaml:"stdout" oneOf:"true"`
}

// Kind returns the key of the destination: nats, kafka or stdout.
func (d *Destinations) Kind() string {
	kind, _ := d.given()
	return kind
}

// Destination returns the configuration of the destination.
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
