package control

import (
	"cmp"
	"slices"
	"time"
)

// Health is the state of a part of the bridge, for people and for colors. Compare says which of two states is worse.
type Health string

// The states, the best first.
const (
	Healthy  Health = "ok"       // everything is delivered
	Idle     Health = "idle"     // nothing is to be done: a paused sink, or a resource that need not be readable
	Unknown  Health = "unknown"  // this replica does not know: it is a standby
	Stopping Health = "stopping" // the process is shutting down
	Waiting  Health = "waiting"  // events wait, and nothing is lost: a broker is unavailable, an initial list is read
	Lossy    Health = "lossy"    // events were dropped or gaps delivered in the last 15 minutes
	Failing  Health = "failing"  // it does not work, and does not repair itself: a right is missing, a name is taken
	AtRisk   Health = "at risk"  // something will be lost soon if nobody acts: Fuse says when
)

// Worst returns the worst of several states.
func Worst(states ...Health) Health {
	return slices.MaxFunc(append([]Health{Healthy}, states...), Health.Compare)
}

// Compare returns a positive number if h is worse than other, a negative one if it is better, and 0 otherwise. A state
// that this version does not know is as bad as Unknown.
func (h Health) Compare(other Health) int { return cmp.Compare(h.rank(), other.rank()) }

// rank returns a larger number for a worse state.
func (h Health) rank() int {
	all := []Health{Healthy, Idle, Unknown, Stopping, Waiting, Lossy, Failing, AtRisk}
	if rank := slices.Index(all, h); rank >= 0 {
		return rank
	}
	return slices.Index(all, Unknown)
}

// Verdict says whether everything is delivered.
type Verdict struct {
	Health Health `json:"health"`           // the worst of all parts, except resources that need not be readable
	Text   string `json:"text"`             // one sentence about the worst part, and the number of other problems
	Remedy string `json:"remedy,omitempty"` // what to do about it, if something is known to help
}

// Configuration is the configuration in use.
type Configuration struct {
	File    string    `json:"file"`              // the path of the file, or `built-in`
	Hash    string    `json:"hash,omitempty"`    // a hash of the file, without the keys in which replicas can differ
	Loaded  time.Time `json:"loaded,omitzero"`   // since when it is in use; absent if the bridge has not started because of `error`
	Error   *Problem  `json:"error,omitempty"`   // why the file, as it is now, is not in use
	Refused string    `json:"refused,omitempty"` // with `error`: the hash of the file, as in `hash`, unless it is not YAML
	Waits   string    `json:"waits,omitempty"`   // what a changed file waits for before it is used
}

// Problem is an error, and what to do about it.
type Problem struct {
	Text   string    `json:"text"`             // the error, without secrets
	Remedy string    `json:"remedy,omitempty"` // what to do
	Since  time.Time `json:"since,omitzero"`   // since when it exists
}

// Source is what one watch covers, or a file, topic or stream with audit events.
type Source struct {
	Name      string  `json:"name"`                // the label `source` of metrics
	Resource  string  `json:"resource"`            // the resource with its group, such as `deployments.apps`
	Namespace string  `json:"namespace,omitempty"` // the namespace, unless it covers all
	Selector  string  `json:"selector,omitempty"`  // label and field selectors, or `(auxiliary)` if only `enrich` reads it
	Health    Health  `json:"health"`              // its state
	Synced    bool    `json:"synced"`              // the initial list was handed to the queues of all sinks
	Objects   int     `json:"objects"`             // objects that exist
	Changes   int64   `json:"changes"`             // changes that were read since the process started
	Rate      float64 `json:"rate"`                // changes per second in the last minute
	// ResourceVersion is up to where the changes were read.
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	LastContact     time.Time `json:"lastContact,omitzero"` // when the API server last sent something, or audit events were last read
	Relists         int64     `json:"relists"`              // lists after the initial one, because the watch could not be continued
	Problem         *Problem  `json:"problem,omitempty"`    // why it is not read
}

// Sink is a sink with its queue. The counters begin at 0 when the process starts or, with a state log, becomes the
// leader.
type Sink struct {
	Name        string    `json:"name"`                 // its name in the configuration
	Kind        string    `json:"kind"`                 // `nats`, `kafka` or `stdout`
	Destination string    `json:"destination"`          // servers and the stream or topic, for people, without secrets
	Health      Health    `json:"health"`               // its state
	Connected   bool      `json:"connected"`            // it is connected, its destination accepts events, and it is not paused
	PausedSince time.Time `json:"pausedSince,omitzero"` // when it was paused, if it is paused
	Problem     *Problem  `json:"problem,omitempty"`    // why it does not deliver some or all events
	Received    int64     `json:"received"`             // changes that reached its filter
	Filtered    int64     `json:"filtered"`             // changes that did not pass its filter
	Delivered   int64     `json:"delivered"`            // events that the destination acknowledged
	Rate        float64   `json:"rate"`                 // events per second that were acknowledged in the last minute
	Queue       Queue     `json:"queue"`                // the events that wait
	Lag         float64   `json:"lagSeconds"`           // age of the oldest queued event that is not acknowledged; 0 if there is none
	Parked      []Parked  `json:"parked,omitempty"`     // events that wait for a part of the destination, for up to 20 parts
	Dropped     int64     `json:"dropped"`              // events that a full queue dropped
	Gaps        []Gap     `json:"gaps,omitempty"`       // the latest 20 gaps with a different resource or reason, the latest first
	Fuse        *Fuse     `json:"fuse,omitempty"`       // the time until a loss, while events wait for longer than usual
}

// Waiting returns the number of events that wait for the destination.
func (k *Sink) Waiting() int64 {
	all := k.Queue.Events + k.Queue.Journal
	for _, p := range k.Parked {
		all += int64(p.Events)
	}
	return all
}

// Queue has the events that wait, in memory and on disk.
type Queue struct {
	Events      int64  `json:"events"`       // events in memory and on disk, without parked events
	Bytes       int64  `json:"bytes"`        // bytes in memory
	MemoryBytes int64  `json:"memoryBytes"`  // the bound of `bytes`: `buffer.bytes`
	DiskEvents  int64  `json:"diskEvents"`   // events on disk, including parked events
	DiskBytes   int64  `json:"diskBytes"`    // bytes on disk, including parked events
	MaxDisk     int64  `json:"maxDiskBytes"` // the bound of `diskBytes`: `buffer.spill.maxBytes`
	Overflow    string `json:"overflow"`     // what happens when all of it is full: `block`, `compact` or `drop-oldest`
	Blocked     bool   `json:"blocked"`      // sources wait for this queue now, because all of it is full
	// Journal counts audit events that wait in the audit journal, in addition to `events`.
	Journal int64 `json:"journalEvents,omitempty"`
}

// Parked counts the events that wait for one part of a destination.
type Parked struct {
	Destination string `json:"destination"` // the topic, partition or subject
	Events      int    `json:"events"`      // events that wait
}

// Gap is a gap event that was delivered: states may be missing.
type Gap struct {
	Resource string    `json:"resource"` // the resource with its group
	Reason   string    `json:"reason"`   // the reason of the gap event
	At       time.Time `json:"at"`       // when the last such gap event was delivered, also by a previous process
}

// Fuse says how much longer an outage may last before something is lost.
type Fuse struct {
	Seconds float64 `json:"seconds"` // the least time that is left, at most 30 days; 0 or less if something may be lost already
	Text    string  `json:"text"`    // how it was computed, in one sentence
}

// Checkpoint is what a restart knows.
type Checkpoint struct {
	LastCommit time.Time `json:"lastCommit,omitzero"` // when it was last written
	Bytes      int64     `json:"bytes"`               // size of the file
	Log        string    `json:"log,omitempty"`       // servers and the stream or topic of the state log, if there is one
	Detached   bool      `json:"detached"`            // the state log does not have the last changes, because it is unavailable
	Problem    *Problem  `json:"problem,omitempty"`   // why it is not written
}
