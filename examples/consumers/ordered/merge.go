package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Event is one CloudEvent of the bridge, and where it was read.
type Event struct {
	Partition  int
	Offset     int64
	Attributes map[string]string // as the headers have them, without their prefix
	Data       []byte
}

// Merger brings the events of each resource into the order of their resourceVersions. It keeps each of them until
// progress events of all partitions show that none is missing before it.
type Merger struct {
	partitions []int
	resources  map[string]*resource // by cluster and resource
}

// resource is what a Merger knows of one resource.
type resource struct {
	progress map[int]uint64 // by partition: it has no older change any more
	done     uint64         // all changes up to this resourceVersion were passed on
	kept     []Event        // in the order of their resourceVersions
}

// NewMerger returns a Merger for the partitions of a topic, which must be all of them.
func NewMerger(partitions ...int) *Merger {
	return &Merger{partitions: partitions, resources: map[string]*resource{}}
}

// Add adds the next event of a partition, and returns the events that are to be processed now, in their order.
func (m *Merger) Add(e Event) []Event {
	r := m.of(e)
	version, err := strconv.ParseUint(e.Attributes["resourceversion"], 10, 64)
	switch kind := e.Attributes["type"]; {
	case kind == "dev.deltabridge.progress":
		r.progress[e.Partition] = max(r.progress[e.Partition], version) // after a restart of the bridge it can be lower
		return r.release(m.partitions)
	case kind == "dev.deltabridge.gap" && wentBack(e.Data):
		kept := r.kept
		*r = resource{progress: map[int]uint64{}}
		return append(kept, e)
	case !strings.HasPrefix(kind, "dev.deltabridge.object."), err != nil, version <= r.done:
		return []Event{e} // it is about the stream, or is a repetition, or is not a new change
	}
	r.keep(version, e)
	return nil
}

// Committable returns the offset up to which a partition may be committed: that of the oldest event that is kept, or
// else next, the offset after the last event that was read.
func (m *Merger) Committable(partition int, next int64) int64 {
	for _, r := range m.resources {
		for _, e := range r.kept {
			if e.Partition == partition {
				next = min(next, e.Offset)
			}
		}
	}
	return next
}

// of returns the resource of an event. The subject of a control event is only the resource.
func (m *Merger) of(e Event) *resource {
	name, _, _ := strings.Cut(e.Attributes["subject"], "/")
	name = e.Attributes["source"] + "/" + name
	r := m.resources[name]
	if r == nil {
		r = &resource{progress: map[int]uint64{}}
		m.resources[name] = r
	}
	return r
}

func versionOf(e Event) uint64 {
	version, _ := strconv.ParseUint(e.Attributes["resourceversion"], 10, 64) // Add has parsed it
	return version
}

// keep inserts an event behind those that are not newer.
func (r *resource) keep(version uint64, e Event) {
	at := len(r.kept)
	for at > 0 && versionOf(r.kept[at-1]) > version {
		at--
	}
	r.kept = slices.Insert(r.kept, at, e)
}

// release returns the events up to which all partitions are complete.
func (r *resource) release(partitions []int) []Event {
	done := r.progress[partitions[0]] // 0 if there was no progress event yet
	for _, p := range partitions {
		done = min(done, r.progress[p])
	}
	r.done = max(r.done, done)
	n := 0
	for n < len(r.kept) && versionOf(r.kept[n]) <= r.done {
		n++
	}
	ready := slices.Clone(r.kept[:n])
	r.kept = slices.Delete(r.kept, 0, n)
	return ready
}

// wentBack reports whether a gap event says that etcd was restored, so that resourceVersions are lower than before.
func wentBack(data []byte) bool {
	var gap struct{ From, To string }
	if json.Unmarshal(data, &gap) != nil {
		return false
	}
	from, errFrom := strconv.ParseUint(gap.From, 10, 64)
	to, errTo := strconv.ParseUint(gap.To, 10, 64)
	return errFrom == nil && errTo == nil && to < from
}
