package sinks

import (
	"cmp"
	"hash/maphash"
	"log/slog"
	"strconv"
	"strings"
	"unique"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// maxFound is the maximum number of objects and single events that a Found remembers. It uses about 215 bytes for each
// object, of which 48 are the uid (TestFoundMemory).
const maxFound = 1 << 18

// Found contains what a sink found when it read back the records that earlier processes wrote. It decides which events
// need not be sent.
//
// The events of an object are written in order. The last record of an object therefore decides for all events up to it,
// even if the records of the others are gone because of compaction or retention, or were never written because they
// were merged or rejected. So does a record of a newer object with the same name: compaction can have removed all
// records of the older object. Only an event for which the order of resourceVersions means nothing is recognized by its
// own record: a control event, an addition or leave that a changed configuration caused, a deletion that a list showed,
// and an event of a delivery (Message.Delivery), which repeats each object once on purpose.
//
// Found remembers at most maxFound objects and single events. If more were written, the others are sent again.
type Found struct {
	// Writer is the writer whose records count.
	Writer string
	// Logger receives a warning if there are too many records.
	Logger *slog.Logger

	objects map[string]last     // by uid
	names   map[uint64]uint64   // the highest resourceVersion of the objects with one name, by hashName
	seed    maphash.Seed        // the seed of hashName
	single  map[string]struct{} // events that only their own record shows, by id, or by delivery and object
	full    bool                // set when a record was discarded because the limit was reached
	noted   int                 // number of records since Mark
}

// last is the last state of an object that the destination was sent.
type last struct {
	version uint64
	absent  bool // the last record is a deletion or a leave
	deleted bool // the last record is a deletion, which nothing can follow
	// sent is the id of the first event that this process sends after the record, which then no longer decides. It is
	// empty if there is none.
	sent string
	unique.Handle[origin]
}

// origin contains the values that most records have in common.
type origin struct {
	history, epoch string
	part           string // where the record is
}

// FoundRecord is a record in the destination, as far as Found needs it.
type FoundRecord struct {
	Part    string // the part of the destination; records in one part are in the order in which they were written
	Place   string // the place: see Has
	Subject string // the attribute subject: resource, namespace and name of the object
	Mark    string // the header MarkHeader
	ID      string // the event's id
	UID     string // the object's uid; empty for a control event
	Version string // the resourceVersion
	// Unknown is the attribute finalstateunknown: the deletion was found by a list, and Version is the resourceVersion
	// of the last known state.
	Unknown bool
}

// Identifies reports whether an attribute identifies the event of a record. A record that is read back has these
// attributes as headers.
func Identifies(name string) bool {
	switch name {
	case "id", "uid", "subject", "resourceversion", "finalstateunknown":
		return true
	}
	return false
}

// Set sets the field that belongs to an attribute. It ignores attributes that do not identify the event.
func (r *FoundRecord) Set(name, value string) {
	switch name {
	case "id":
		r.ID = value
	case "uid":
		r.UID = value
	case "subject":
		r.Subject = value
	case "resourceversion":
		r.Version = value
	case "finalstateunknown":
		r.Unknown = value == "true"
	}
}

// RecordOf returns the record of a message that a writer has sent, without its Part and Place. The record shares no
// memory with the message, whose strings can be parts of a larger one.
func RecordOf(writer string, m *event.Message) FoundRecord {
	return FoundRecord{
		Mark: Mark(writer, m), ID: strings.Clone(m.ID), UID: strings.Clone(string(m.Identity.UID)),
		Version: strings.Clone(m.Identity.ResourceVersion), Subject: m.Subject(), Unknown: m.FinalStateUnknown,
	}
}

// Note adds a record. The records of each part must be added in their order. The parts can be read one after another.
func (f *Found) Note(r FoundRecord) {
	writer, mark, _ := strings.Cut(r.Mark, " ")
	history, mark, _ := strings.Cut(mark, " ")
	epoch, delivery, _ := strings.Cut(mark, " ")
	if writer != f.Writer || f.Writer == "" || mutant.On("no-read-back") {
		return
	}
	f.noted++
	switch {
	case delivery != "":
		f.noteSingle(deliveredID(delivery, r.UID, r.ID))
	case r.UID == "":
		f.noteSingle(controlID(r.ID, history, epoch))
	case r.Unknown || isConfigured(r.ID):
		f.noteSingle(r.ID)
	}
	version, err := strconv.ParseUint(r.Version, 10, 64)
	if r.UID == "" || err != nil {
		return
	}
	s, remembered := f.objects[r.UID]
	if f.objects == nil {
		f.objects, f.names, f.seed = map[string]last{}, map[uint64]uint64{}, maphash.MakeSeed()
	}
	if r.Subject != "" && len(f.names) < maxFound {
		name := f.hashName(r.Place, history, r.Subject)
		f.names[name] = max(f.names[name], version)
	}
	sameHistory := remembered && s.sent == "" && s.Value().history == history
	left, gone := endsObject(r.UID, r.ID)
	deleted := gone && r.ID == r.UID+deletedSuffix
	switch {
	case sameHistory && s.Value().part != r.Part && (s.deleted || version < s.version && !deleted):
		return // the newer record is in another part of the destination that was read earlier
	case sameHistory:
		version = max(version, s.version) // a leave can have an older resourceVersion
	case !remembered && !f.hasRoom():
		return
	}
	f.objects[r.UID] = last{
		version: version,
		absent:  left || gone,
		deleted: deleted,
		Handle:  unique.Make(origin{history, epoch, r.Part}),
	}
}

// Sent adds the record of a message that was written just now. It must be called if an earlier process may have left
// the message on disk (Origin.Left), because its source can bring the event again.
func (f *Found) Sent(m *event.Message, part, place string) {
	r := RecordOf(f.Writer, m)
	r.Part, r.Place = part, place
	f.Note(r)
}

// Mark marks the records that were added until now: see Forget.
func (f *Found) Mark() { f.noted = 0 }

// Forget removes all records if none was added since the last Mark. It must be called only if no event comes again
// that was sent before the last Mark. From then on, records can only do harm: if etcd was restored unnoticed, new
// events have lower resourceVersions.
func (f *Found) Forget() {
	if f.noted == 0 {
		*f = Found{Writer: f.Writer, Logger: f.Logger}
	}
}

// Empty reports whether there are no records.
func (f *Found) Empty() bool { return len(f.objects) == 0 && len(f.single) == 0 }

// hashName returns the hash of the name of an object, at one place and in one history of etcd.
func (f *Found) hashName(place, history, subject string) uint64 {
	return maphash.Comparable(f.seed, [...]string{place, history, subject})
}

func (f *Found) hasRoom() bool {
	if len(f.objects)+len(f.single) < maxFound {
		return true
	}
	if !f.full {
		f.Logger.Warn("too many records to read back, some events may be written again")
	}
	f.full = true
	return false
}

func (f *Found) noteSingle(id string) {
	if f.hasSingle(id) || !f.hasRoom() {
		return
	}
	if f.single == nil {
		f.single = map[string]struct{}{}
	}
	f.single[id] = struct{}{}
}

// The parts of an event id that follow the uid; see package event.
const (
	deletedSuffix = ".deleted"
	leftPart      = ".left"
	filterPart    = ".filter."
)

// endsObject reports whether the id is that of a leave or of a deletion.
func endsObject(uid, id string) (left, deleted bool) {
	rest := strings.TrimPrefix(id, uid)
	rest, _, _ = strings.Cut(rest, filterPart)
	return strings.HasSuffix(rest, leftPart), strings.HasSuffix(rest, deletedSuffix)
}

// controlID identifies a control event. With another configuration, or in another history of etcd, another control
// event can have the same id.
func controlID(id, history, epoch string) string { return id + " " + history + " " + epoch }

// deliveredID identifies an event of a delivery, which contains each object once. If the object has changed since it
// was sent, the source brings the changes.
func deliveredID(delivery, uid, id string) string { return delivery + " " + cmp.Or(uid, id) }

// isConfigured reports whether the id is that of an addition or leave that a changed configuration caused.
func isConfigured(id string) bool { return strings.Contains(id, filterPart) }

// Has reports whether the event must not be sent, because the destination has it or a later event, or because of
// Message.IfFound. If it returns false, the event is sent, and from then on no earlier record decides about the object.
// If it could not be sent, Has can be called again.
//
// place is where the event is to be written: a partition, or a subject. Only the events at one place have a certain
// order. A record of a newer object with the same name at this place shows that the event was settled before.
func (f *Found) Has(m *event.Message, place string) bool {
	if f.Empty() {
		return m.IfFound
	}
	uid, configured := string(m.Identity.UID), isConfigured(m.ID)
	s, known := f.objects[uid]
	switch {
	case m.IfFound && !known:
		return !f.full // if records were discarded, the object may be in one of them
	case m.IfFound && s.sent != "":
		return s.sent != m.ID // m may be sent again after a failure
	case m.IfFound && (s.absent || s.Value().history != m.History):
		return true
	case m.Delivery != "":
		if f.hasSingle(deliveredID(m.Delivery, uid, m.ID)) {
			return true
		}
	case m.Type.IsControl():
		return f.hasSingle(controlID(m.ID, m.History, configuration(m.Epoch)))
	case (configured || m.FinalStateUnknown) && f.hasSingle(m.ID):
		return true
	case known && s.sent == "" && s.covers(m, configured):
		return true
	case !known && f.isReplaced(m, place):
		return true
	}
	if known && s.sent == "" {
		s.sent = m.ID
		f.objects[uid] = s
	}
	return false
}

// isReplaced reports whether a newer object with the same name has a record.
func (f *Found) isReplaced(m *event.Message, place string) bool {
	version, err := strconv.ParseUint(m.Identity.ResourceVersion, 10, 64)
	return err == nil && f.names != nil && version < f.names[f.hashName(place, m.History, m.Subject())]
}

func (f *Found) hasSingle(id string) bool { _, found := f.single[id]; return found }

// covers reports whether the event precedes the state, or leads to it. This includes a leave that only a changed filter
// causes: if the state does not pass that filter either, another leave follows.
func (s *last) covers(m *event.Message, configured bool) bool {
	version, err := strconv.ParseUint(m.Identity.ResourceVersion, 10, 64)
	absent := m.Type == event.Deleted
	switch {
	case err != nil || s.Value().history != m.History:
		return false
	case s.deleted:
		return true
	case absent && m.FinalStateUnknown: // it may be newer than the state
		return s.absent // a newer object with the same name may follow the state
	case configuration(m.Epoch) < s.Value().epoch && m.Origin.Left && version <= s.version:
		return true // an earlier process has left it on disk, and it was sent before anything of a newer configuration
	case configuration(m.Epoch) < s.Value().epoch && m.LeftFilter && !s.absent:
		return false // an older state of the bridge was restored, so that no other leave follows
	case version == s.version || configured && !absent || m.Final:
		return version <= s.version && absent == s.absent
	default:
		return version < s.version
	}
}
