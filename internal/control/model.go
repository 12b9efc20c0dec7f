package control

import "time"

// Health is the state of a part of the bridge, for people and for colors. A worse state is later in the list.
type Health string

// The states.
const (
	Healthy  Health = "ok"       // everything is delivered
	Idle     Health = "idle"     // nothing is to be done: a paused sink, or a resource that is not served
	Waiting  Health = "waiting"  // events wait, and nothing is lost: a broker is unavailable, an initial list is read
	AtRisk   Health = "at risk"  // something will be lost if nobody acts: Fuse says when
	Failing  Health = "failing"  // it does not work, and does not repair itself: a right is missing, a name is taken
	Lossy    Health = "lossy"    // events were dropped or gaps delivered in the last 15 minutes
	Unknown  Health = "unknown"  // this replica does not know: it is a standby
	Stopping Health = "stopping" // the process is shutting down
)

// Verdict says whether everything is delivered.
type Verdict struct {
	Health Health `json:"health"` // the worst of all parts
	Text   string `json:"text"`   // one sentence
	Remedy string `json:"remedy,omitempty"`
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
	Name        string    `json:"name"`     // as in metrics
	Resource    string    `json:"resource"` // with its group
	Namespace   string    `json:"namespace,omitempty"`
	Selector    string    `json:"selector,omitempty"`
	Health      Health    `json:"health"`
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
	PausedSince time.Time `json:"pausedSince,omitzero"`
	Problem     *Problem  `json:"problem,omitempty"` // why it does not deliver
	Received    int64     `json:"received"`          // changes that reached the filter since the start of the process
	Filtered    int64     `json:"filtered"`          // changes that did not pass it
	Delivered   int64     `json:"delivered"`         // events that the destination acknowledged
	Rate        float64   `json:"rate"`              // events that were acknowledged per second, in the last minute
	Queue       Queue     `json:"queue"`
	Lag         float64   `json:"lagSeconds"` // age of the oldest event that is not acknowledged; 0 if there is none
	Parked      []Parked  `json:"parked,omitempty"`
	DeadLetters int       `json:"deadLetters"`
	Dropped     int64     `json:"dropped"` // events that a full queue dropped
	Gaps        []Gap     `json:"gaps,omitempty"`
	Fuse        *Fuse     `json:"fuse,omitempty"` // present while events wait for the destination
}

// Queue has the events that wait. Bytes beyond MemoryBytes are on disk.
type Queue struct {
	Events      int64  `json:"events"`
	Bytes       int64  `json:"bytes"`       // in memory
	MemoryBytes int64  `json:"memoryBytes"` // the bound of Bytes
	DiskEvents  int64  `json:"diskEvents"`
	DiskBytes   int64  `json:"diskBytes"` // of the spill and of parked events
	MaxDisk     int64  `json:"maxDiskBytes"`
	Overflow    string `json:"overflow"` // what happens when all of it is full
	Blocked     bool   `json:"blocked"`  // a source waits for this queue now
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
	// Seconds is at least this much. It is negative if something may have been lost already.
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
