package chaos

import (
	"math"
	"slices"
	"time"
)

// Rev is a revision of etcd: a state of an object, or its deletion.
type Rev struct {
	RV                        int64
	Resource, Namespace, Name string
	UID                       string
	Deleted                   bool
	Team                      string // the label; of a deletion, that of the last state
	Stamp                     string // what the writer wrote: no two states have the same
	At                        time.Time

	prev, next *Rev // of the same name, whatever the uid
}

// History is what etcd committed, in order.
type History struct {
	Revs []*Rev
	byRV map[int64]*Rev
	uids map[string][]*Rev
}

// NewHistory links the revisions of each object.
func NewHistory(revs []*Rev) *History {
	h := &History{Revs: revs, byRV: map[int64]*Rev{}, uids: map[string][]*Rev{}}
	last := map[string]*Rev{}
	for _, r := range revs {
		r.prev, r.next = nil, nil
		subject := r.subject()
		if before := last[subject]; before != nil && !before.Deleted {
			r.prev, before.next = before, r
		}
		last[subject] = r
		h.byRV[r.RV] = r
		h.uids[r.UID] = append(h.uids[r.UID], r)
	}
	return h
}

// end is the revision that ended the state.
func (r *Rev) end() int64 {
	if r.next == nil {
		return math.MaxInt64
	}
	return r.next.RV
}

func (r *Rev) subject() string { return r.Resource + "/" + r.Namespace + "/" + r.Name }

// Event is a message as an independent client read it.
type Event struct {
	Place int       // the partition
	At    time.Time // when it was stored
	Made  time.Time // what it says of itself: when the bridge read of the change
	// Operation is added, updated, deleted, restated, gap, synced or progress; empty for a tombstone.
	Operation                 string
	ID                        string
	Key                       string // of a Kafka record
	Resource, Namespace, Name string
	UID                       string
	RV                        int64
	Left                      bool // leftfilter
	Unknown                   bool // finalstateunknown
	Initial                   bool // initiallist
	Stamp                     string
	Gap                       *Gap
	Seq                       int64         // the offset or sequence
	Apart                     bool          // it is in the topic or stream of control events
	Position                  map[int]int64 // of such an event: the next offset or sequence of the objects, by partition
}

// made is when the bridge made the event: which process did.
func (e *Event) made() time.Time {
	if e.Made.IsZero() {
		return e.At
	}
	return e.Made
}

func (e *Event) subject() string { return e.Resource + "/" + e.Namespace + "/" + e.Name }
func (e *Event) object() bool {
	return e.Operation != "" && e.Operation != "gap" && e.Operation != "synced" && e.Operation != "progress"
}

// Gap is the data of a gap event.
type Gap struct {
	Resource, Reason string
	From, To         int64
	Events           int
	Subject          string
}

// Timeline is what happened in a run, and when.
type Timeline struct {
	Processes []Process
	Faults    []Fault
	Settled   []Settled
	Relists   []Gap // that the bridge logged: a stream of last messages keeps only the gap event of the last one
}

// Settled is a moment at which everything up to a revision had arrived.
type Settled struct {
	At  time.Time
	Rev int64
}

// settledBy reports whether everything had arrived at one moment of a process.
func (t *Timeline) settledBy(p *Process) bool {
	return slices.ContainsFunc(t.Settled, func(s Settled) bool {
		return s.At.After(p.Start) && (p.End.IsZero() || !s.At.After(p.End))
	})
}

// Process is one process of the bridge.
type Process struct {
	Config     Config
	Start, End time.Time
	Up         time.Time // when it said that it starts, which takes a while on a busy machine
	// The revisions of etcd when it was started, when it had handed over its first lists (0: it never had), and when it
	// had ended.
	StartRev, ReadyRev, EndRev int64
	How                        string    // kill or term
	Asked                      time.Time // when it was asked to end
}

// Fault is a fault of a destination (Sink is its name), of the API server or of the disk.
type Fault struct {
	Action   Action
	Sink     string
	From, To time.Time
	Rev      int64 // of etcd at From
}
