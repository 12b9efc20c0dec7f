package config

// Values of Sink.Secrets.
const (
	SecretsFingerprint = "fingerprint"
	SecretsPlain       = "plain"
)

// Values of Sink.Payload that are documents of the bridge's own: with both states, and with the metadata alone.
const (
	PayloadChange   = "change"
	PayloadMetadata = "metadata"
)

// Values of Buffer.Overflow.
const (
	OverflowBlock      = "block"
	OverflowCompact    = "compact"
	OverflowDropOldest = "drop-oldest"
)

// Sink is one destination, with what goes there and how.
type Sink struct {
	// Names the sink in logs and metrics. Lower-case letters, digits and `-`, at most 63 characters; no two sinks
	// have the same name.
	Name string `yaml:"name" required:"true" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" example:"audit"`
	// Which events go there: those that any of the filters lets through. None: all that is watched.
	Filters []Filter `yaml:"filters"`
	// The data of an event. `object`: the object as the API server sent it, without `managedFields`; for a deletion
	// its last known state. `change`: new and old state, the difference between them as a patch and as a list of paths,
	// and which field managers own what changed. `metadata`: `apiVersion`, `kind` and `metadata` alone.
	Payload string `yaml:"payload" default:"object" enum:"object change metadata" example:"change"`
	// The form of the patch in `payload: change`. `json`: a list of operations (JSON Patch, RFC 6902). `merge`: a partial
	// document (JSON Merge Patch, RFC 7386), which replaces lists as a whole and can't tell a key that became null from one
	// that was removed.
	Patch string `yaml:"patch" default:"json" enum:"json merge" example:"merge"`
	// How a CloudEvent becomes a message. `binary`: its attributes are headers, and the body is the data.
	// `structured`: the body is the whole event as JSON.
	Content string `yaml:"content" default:"binary" enum:"binary structured" example:"structured"`
	// What becomes of the values in Secrets, in the annotation `last-applied-configuration` and of what `redact` names.
	// `fingerprint`: a keyed fingerprint stands in place of each, so that a change is visible and a value is not. `plain`:
	// they are sent as they are. The sink's filters see what is sent.
	Secrets string `yaml:"secrets" default:"fingerprint" enum:"fingerprint plain" example:"plain"`
	// How often everything that exists and is for this sink is told once more, as it is then: events of their own type
	// (`restated`), which are no changes. They heal what a destination has lost. `bridge resync` does it on request. 0s: never
	// by itself.
	Resync Duration `yaml:"resync" default:"0s" min:"0s" example:"6h"`
	// What becomes of an event that is larger than the destination takes. `metadata`: it is sent with the metadata of the
	// object alone, and says so. `claimCheck`: the same, and the whole data goes to an object store. `deadLetter`: it is
	// kept as `deadLetter` says, and a gap event takes its place. `gap`: a gap event takes its place. What is too large
	// even with metadata alone is dealt with as `deadLetter`, or if that is not given as `gap`.
	Oversize string `yaml:"oversize" default:"metadata" enum:"metadata claimCheck deadLetter gap" example:"claimCheck"`
	// The object store for `oversize: claimCheck`.
	ClaimCheck *ClaimCheck `yaml:"claimCheck"`
	// Where events are kept that the destination refuses for good: malformed ones, and with `oversize: deadLetter` those
	// that are too large. Not given: nowhere, and a gap event takes their place.
	DeadLetter *DeadLetter `yaml:"deadLetter"`
	// What other objects say of the one that an event is about: docs/events.md.
	Enrich Enrich `yaml:"enrich"`
	// The queue in front of the sink.
	Buffer Buffer `yaml:"buffer"`
	// Deliver to a NATS JetStream stream. A sink has exactly one of `nats`, `kafka` and `stdout`.
	NATS *NATS `yaml:"nats" oneOf:"true"`
	// Deliver to Kafka topics.
	Kafka *Kafka `yaml:"kafka" oneOf:"true"`
	// Write to standard output. There is nothing to set: `stdout: {}`.
	Stdout *Stdout `yaml:"stdout" oneOf:"true"`
}

// Values of Enrich.As.
const (
	EnrichAttributes = "attributes"
	EnrichData       = "data"
)

// Enrich adds to events what other objects say of theirs. It comes from what the bridge watches, never from a request
// for an event: what is needed and not in `watch` is watched besides, in the same namespaces, and not sent.
type Enrich struct {
	// The top owner of the object: a Pod's Deployment, a Job's CronJob. Watched for it: `replicasets`, `statefulsets`,
	// `daemonsets` and `deployments` in `apps`, `jobs` and `cronjobs` in `batch`. Put others that own such, as in custom
	// resources, into `watch`; else the last owner reference that is known counts.
	Owner bool `yaml:"owner" default:"false" example:"true"`
	// The labels of the object's namespace. Watched for it: `namespaces`, in the whole cluster.
	NamespaceLabels bool `yaml:"namespaceLabels" default:"false" example:"true"`
	// For Kubernetes Events: the labels of the object that they are about, and with `owner` its top owner. Watched for it:
	// `pods`, `nodes` where the whole cluster is watched, and what is for `owner`.
	InvolvedObject bool `yaml:"involvedObject" default:"false" example:"true"`
	// Where it stands. `attributes`: in attributes of the event, which are headers. `data`: in the data, as `context`; not with
	// `payload: object`, which is the object alone.
	As string `yaml:"as" default:"attributes" enum:"attributes data" example:"data"`
}

// Wanted reports whether anything is asked for.
func (e *Enrich) Wanted() bool { return e.Owner || e.NamespaceLabels || e.InvolvedObject }

// Filter is conditions on events. All that are given have to hold.
type Filter struct {
	// The resources to let through, in the notation of `watch[].resources`. Empty: all.
	Resources []string `yaml:"resources" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, \"*.example.com\"]"`
	// The namespaces to let through, in the notation of `watch[].namespaces`. Empty: all.
	Namespaces []string `yaml:"namespaces" pattern:"^!?[a-z0-9*?\\[\\]^-]*$" example:"[\"team-*\", \"!team-test\"]"`
	// The operations to let through: `added`, `updated`, `deleted`; `restated`, which `added` and `updated` let through too,
	// for objects that are told once more (`resync`). Empty: all.
	Operations []string `yaml:"operations" entries:"added updated deleted restated" example:"[added, deleted]"`
	// A condition in CEL (https://cel.dev) over `object`, `old` (null but for updates) and `operation`. If it speaks
	// of `object` alone, an object that begins to meet it is added for this sink, and one that ceases to is deleted.
	// A condition that fails, for instance on a field that is not there, counts as met; `has(object.status)` and
	// `object.?status.?phase.orValue('')` ask in safety.
	When string `yaml:"when" default:"\"\"" example:"object.?status.?phase.orValue('') == 'Failed'"`
	// An update that touches nothing but these parts of the object is no event. Paths: `status`,
	// `metadata.annotations["example.com/at"]`, `spec.items[*].lastSeen`. Names that stand for several: `status`, `metadata`,
	// `managedFields` (what the API server alone counts: `resourceVersion` and `generation` are never a change where this
	// key or `onlyChanges` is given), `leases` (locks that are renewed by who holds them), `heartbeats` (times at which
	// somebody looked, in `status.conditions` and on endpoints).
	IgnoreChanges []string `yaml:"ignoreChanges" example:"[status, metadata.annotations]"`
	// An update is an event only if it touches one of these parts of the object; the notation of paths is that of
	// `ignoreChanges`, which wins where both name something. Empty: all.
	OnlyChanges []string `yaml:"onlyChanges" example:"[spec, metadata.labels]"`
	// `quiet`, for watches of everything: leaves out what only churns. That is Events, Endpoints and EndpointSlices as a
	// whole, and updates that are nothing but `managedFields`, `leases` and `heartbeats`. Empty: nothing.
	Preset string `yaml:"preset" enum:"quiet" example:"quiet"`
}

// Buffer is the bounded queue in front of a sink. It holds what the destination has not acknowledged yet.
type Buffer struct {
	// How many events it holds in memory at most.
	Events int `yaml:"events" default:"8192" min:"1" max:"10000000" example:"100000"`
	// How many bytes it holds in memory at most. A single event that is larger passes alone.
	Bytes Size `yaml:"bytes" default:"32Mi" min:"64Ki" max:"1Ti" example:"256Mi"`
	// What happens when memory and disk are full. `block`: the source waits, and other sinks with it; nothing is lost.
	// `compact`: waiting changes of one object are merged into one; intermediate states go, deletions and final states stay.
	// `drop-oldest`: the oldest event goes and is counted, and a gap event says so. The last two apply to the half of the
	// events and bytes in memory that came last.
	Overflow string `yaml:"overflow" default:"block" enum:"block compact drop-oldest" gone:"spill: every sink writes to disk what does not fit into memory; remove the line" example:"compact"`
	// What may be written to disk: what does not fit into memory, and what waits for longer than ten seconds. The file is in
	// the directory of the state.
	Spill Spill `yaml:"spill"`
}

// Spill is the part of a queue that is on disk.
type Spill struct {
	// How many bytes it holds at most; then `overflow` applies. When the bridge stops, it writes what is left in memory even
	// beyond that. Events that are parked for a topic, partition or subject that takes none are in a file of their own: it grows
	// while both files together hold less than this, and takes no room from the spill. So a sink takes at most twice this on disk.
	MaxBytes Size `yaml:"maxBytes" default:"1Gi" min:"64Ki" max:"16Ti" example:"20Gi"`
}

// Kind is the key of the sink's destination: nats, kafka or stdout.
func (s *Sink) Kind() string {
	switch {
	case s.NATS != nil:
		return "nats"
	case s.Kafka != nil:
		return "kafka"
	}
	return "stdout"
}

// LastOnly reports whether the destination keeps the last event of each object alone.
func (s *Sink) LastOnly() bool {
	return s.Kafka != nil && s.Kafka.Tombstones || s.NATS != nil && s.NATS.Stream.LastPerSubject
}

// Stdout writes each event as one line of JSON to standard output.
type Stdout struct{}
