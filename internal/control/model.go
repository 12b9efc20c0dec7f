package control

import (
	"slices"
	"time"
)

// Health is the state of a part of the bridge, for people and for colors. Worst says which of two states is worse.
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

// Worst returns the worst of several states. A state that this version does not know is as bad as Unknown.
func Worst(states ...Health) Health {
	worst := Healthy
	for _, h := range states {
		if h.rank() > worst.rank() {
			worst = h
		}
	}
	return worst
}

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
	Remedy string `json:"remedy,omitempty"` // what to do about it; absent if nothing is known to help
}

// Configuration is the configuration in use.
type Configuration struct {
	File   string    `json:"file"`            // "built-in" without a file
	Hash   string    `json:"hash,omitempty"`  // without the keys in which replicas can differ
	Loaded time.Time `json:"loaded,omitzero"` // since when it is in use
	Error  *Problem  `json:"error,omitempty"` // why the file, as it is now, is not in use
	Waits  string    `json:"waits,omitempty"` // what a changed file waits for before it is used
}

// Problem is an error, since when it exists, and what to do about it.
type Problem struct {
	Text   string    `json:"text"`
	Remedy string    `json:"remedy,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// Source is what one watch covers.
type Source struct {
	Name        string    `json:"name"`     // the label source of metrics
	Resource    string    `json:"resource"` // with its group
	Namespace   string    `json:"namespace,omitempty"`
	Selector    string    `json:"selector,omitempty"`
	Health      Health    `json:"health"`
	Synced      bool      `json:"synced"` // the initial list was handed to all sinks
	Objects     int       `json:"objects"`
	Changes     int64     `json:"changes"`              // read since the start of the process
	Rate        float64   `json:"rate"`                 // changes per second in the last minute
	LastContact time.Time `json:"lastContact,omitzero"` // with the API server
	Relists     int64     `json:"relists"`
	Problem     *Problem  `json:"problem,omitempty"`
}

// Sink is a sink with its queue.
type Sink struct {
	Name        string    `json:"name"`
	Kind        string    `json:"kind"`        // nats, kafka or stdout
	Destination string    `json:"destination"` // for people, without secrets
	Health      Health    `json:"health"`
	Connected   bool      `json:"connected"` // it is connected, its destination accepts events, and it is not paused
	PausedSince time.Time `json:"pausedSince,omitzero"`
	Problem     *Problem  `json:"problem,omitempty"` // why it does not deliver
	Received    int64     `json:"received"`          // changes that reached the filter since the start of the process
	Filtered    int64     `json:"filtered"`          // changes that did not pass it
	Delivered   int64     `json:"delivered"`         // events that the destination acknowledged
	Rate        float64   `json:"rate"`              // events that were acknowledged per second, in the last minute
	Queue       Queue     `json:"queue"`
	Lag         float64   `json:"lagSeconds"` // age of the oldest event that is not acknowledged; 0 if there is none
	Parked      []Parked  `json:"parked,omitempty"`
	DeadLetters int       `json:"deadLetters"`    // in the state directory
	Dropped     int64     `json:"dropped"`        // events that a full queue dropped
	Gaps        []Gap     `json:"gaps,omitempty"` // the last 20 pairs of a resource and a reason, the latest first
	Fuse        *Fuse     `json:"fuse,omitempty"` // present while events wait for longer than usual
}

// Queue has the events that wait. Bytes beyond MemoryBytes are on disk.
type Queue struct {
	Events      int64  `json:"events"`      // in memory and on disk, without parked events
	Bytes       int64  `json:"bytes"`       // in memory
	MemoryBytes int64  `json:"memoryBytes"` // the bound of Bytes
	DiskEvents  int64  `json:"diskEvents"`  // of the spill and parked
	DiskBytes   int64  `json:"diskBytes"`   // of the spill and of parked events
	MaxDisk     int64  `json:"maxDiskBytes"`
	Overflow    string `json:"overflow"` // what happens when all of it is full: block, compact or drop-oldest
	Blocked     bool   `json:"blocked"`  // sources wait for this queue now, because all of it is full
}

// Parked counts the events that wait for one part of a destination.
type Parked struct {
	Destination string `json:"destination"`
	Events      int    `json:"events"`
}

// Gap is a place in the stream where states may be missing.
type Gap struct {
	Resource string    `json:"resource"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"` // when the last gap event was delivered
}

// Fuse says how much longer an outage may last before something is lost.
type Fuse struct {
	// Seconds is the least time that is left, at most 30 days. It is 0 or negative if something may be lost already.
	Seconds float64 `json:"seconds"`
	Text    string  `json:"text"` // how it was computed, in one sentence
}

// Checkpoint is what a restart knows.
type Checkpoint struct {
	LastCommit time.Time `json:"lastCommit,omitzero"`
	Bytes      int64     `json:"bytes"`
	Log        string    `json:"log,omitempty"` // where the state log is, if there is one
	Detached   bool      `json:"detached"`      // the state log is unavailable
	Problem    *Problem  `json:"problem,omitempty"`
}
