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

// Sink is one destination, with what goes there and how.
type Sink struct {
	// Names the sink in logs and metrics. Lower-case letters, digits and `-`, at most 63 characters; no two sinks
	// have the same name.
	Name string `yaml:"name" required:"true" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" example:"audit"`
	// Which events go there: those that any of the filters lets through. None: all that is watched.
	Filters []filter.Rule `yaml:"filters"`
	// The data of an event. `object`: the object as the API server sent it, without `managedFields`; for a deletion
	// its last known state. `change`: new and old state, the difference between them as a patch and as a list of paths,
	// and which field managers own what changed. `metadata`: `apiVersion`, `kind` and `metadata` alone.
	Payload event.Payload `yaml:"payload" default:"object" enum:"object change metadata" example:"change"`
	// The form of the patch in `payload: change`. `json`: a list of operations (JSON Patch, RFC 6902). `merge`: a partial
	// document (JSON Merge Patch, RFC 7386), which replaces lists as a whole and can't tell a key that became null from one
	// that was removed.
	Patch event.Patch `yaml:"patch" default:"json" enum:"json merge" example:"merge"`
	// How a CloudEvent becomes a message. `binary`: its attributes are headers, and the body is the data.
	// `structured`: the body is the whole event as JSON.
	Content event.Content `yaml:"content" default:"binary" enum:"binary structured" example:"structured"`
	// What becomes of the values in Secrets, in the annotation `last-applied-configuration` and of what `redact` names.
	// `fingerprint`: a keyed fingerprint stands in place of each, so that a change is visible and a value is not. `plain`:
	// they are sent as they are. The sink's filters see what is sent.
	Secrets string `yaml:"secrets" default:"fingerprint" enum:"fingerprint plain" example:"plain"`
	// How often everything that exists and is for this sink is sent again, as it is then: events of their own type
	// (`restated`), which are no changes. They heal what a destination has lost. `bridge resync` does it on request. 0s: never
	// by itself.
	Resync time.Duration `yaml:"resync" default:"0s" min:"0s" example:"6h"`
	// What becomes of an event that is larger than the destination takes. `metadata`: it is sent with the metadata of the
	// object alone, and says so. `claimCheck`: the same, and the whole data goes to an object store. `deadLetter`: it is
	// kept as `deadLetter` says, and a gap event takes its place. `gap`: a gap event takes its place. What is too large
	// even with metadata alone is dealt with as `deadLetter`, or if that is not given as `gap`.
	Oversize sinks.Outcome `yaml:"oversize" default:"metadata" enum:"metadata claimCheck deadLetter gap" example:"claimCheck"`
	// The object store for `oversize: claimCheck`.
	ClaimCheck *nats.PayloadConfig `yaml:"claimCheck"`
	// Where events are kept that the destination rejects: malformed ones, and with `oversize: deadLetter` those
	// that are too large. Not given: nowhere, and a gap event takes their place.
	DeadLetter *DeadLetter `yaml:"deadLetter"`
	// What other objects say of the one that an event is about: docs/events.md.
	Enrich Enrich `yaml:"enrich"`
	// The queue in front of the sink.
	Buffer       Buffer `yaml:"buffer"`
	Destinations `yaml:",inline"`
}

// Values of Enrich.As.
const (
	EnrichAttributes = "attributes"
	EnrichData       = "data"
)

// Enrich adds to events what other objects say of theirs. It comes from what the bridge watches, never from a request
// for an event: what is needed and not in `watch` is watched besides, in the same namespaces, and not sent.
type Enrich struct {
	enrich.Needs `yaml:",inline"`
	// Where it stands. `attributes`: in attributes of the event, which are headers. `data`: in the data, as `context`; not with
	// `payload: object`, which is the object alone.
	As string `yaml:"as" default:"attributes" enum:"attributes data" example:"data"`
}

// Buffer is the bounded queue in front of a sink. It holds what the destination has not acknowledged yet.
type Buffer struct {
	// How many events it holds in memory at most.
	Events int `yaml:"events" default:"8192" min:"1" max:"10000000" example:"100000"`
	// How many bytes it holds in memory at most. A single event that is larger passes alone.
	Bytes int64 `yaml:"bytes" default:"32Mi" min:"64Ki" max:"1Ti" example:"256Mi"`
	// What happens when memory and disk are full. `block`: the source waits, and other sinks with it; nothing is lost.
	// `compact`: waiting changes of one object are merged into one; intermediate states go, deletions and final states stay.
	// `drop-oldest`: the oldest event goes and is counted, and a gap event says so. The last two apply to the half of the
	// events and bytes in memory that came last.
	Overflow string `yaml:"overflow" default:"block" enum:"block compact drop-oldest" example:"compact"`
	// What may be written to disk: what does not fit into memory, and what waits for longer than ten seconds. The file is in
	// the directory of the state.
	Spill Spill `yaml:"spill"`
}

// Spill is the part of a queue that is on disk.
type Spill struct {
	// How many bytes it holds at most; then `overflow` applies. When the bridge stops, it writes what is left in memory even
	// beyond that. Events that are parked for a topic, partition or subject that takes none are in a file of their own: it grows
	// while both files together hold less than this, and takes no room from the spill. So a sink takes at most twice this on disk.
	MaxBytes int64 `yaml:"maxBytes" default:"1Gi" min:"64Ki" max:"16Ti" example:"20Gi"`
}

// DeadLetter is where events are kept that the destination rejects. A gap event takes the place of each. It has
// exactly one of `file`, `topic` and `subject`.
type DeadLetter struct {
	// Keep them in a file in the directory of the state, for `bridge dead-letters`.
	File              *DeadLetterFile `yaml:"file" oneOf:"true"`
	sinks.LetterPlace `yaml:",inline"`
}

// DeadLetterFile is dead letters on the disk of the bridge.
type DeadLetterFile struct {
	// How many bytes they take at most. What comes when it is full is lost: counted, logged as an error, and a gap event
	// says so.
	MaxBytes int64 `yaml:"maxBytes" default:"64Mi" min:"1Mi" max:"16Ti" example:"1Gi"`
}

// Destinations are the kinds of destinations. A sink has exactly one. Another kind is another field here.
type Destinations struct {
	// Deliver to a NATS JetStream stream. A sink has exactly one of `nats`, `kafka` and `stdout`.
	NATS *nats.Config `yaml:"nats" oneOf:"true"`
	// Deliver to Kafka topics.
	Kafka *kafka.Config `yaml:"kafka" oneOf:"true"`
	// Write to standard output. There is nothing to set: `stdout: {}`.
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
