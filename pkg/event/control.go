package event

import (
	"encoding/json"
	"slices"

	"github.com/deltabridge/deltabridge/internal/mutant"
)

// gapID: a gap between the same resourceVersions for the same reason is the same gap.
func gapID(cluster string, g *GapInfo) string {
	return "gap." + cluster + "." + g.Resource + "." + g.Reason + "." + g.From + "." + g.To
}

// RefusalGap is the small gap event that takes the place of a message that the destination rejects, so that the hole is
// in the stream and not only in a log. reason is one of the Reason constants; deadLetter says where the message is
// kept, and is empty if it is not.
func RefusalGap(m *Message, reason, message, deadLetter string) *Message {
	info := &GapInfo{
		Resource: GroupResource(m.Resource), From: m.Identity.ResourceVersion, To: m.Identity.ResourceVersion,
		Reason: reason, Message: message, Events: 1, DeadLetter: deadLetter,
	}
	if !m.Type.IsControl() {
		info.Event, info.Subject, info.Operation = m.ID, m.Subject(), m.Type.String()
	}
	gap := gapMessage(m, info)
	// The object's own id leads: several objects can be refused at one resourceVersion of a list.
	gap.ID = m.ID + ".gap"
	if m.Type == Deleted { // what is deleted has no state that the gap could replace, and a tombstone may have to follow
		gap.PartitionKey, info.Deletion = m.PartitionKey, m
	}
	return gap
}

// FoldsInto reports whether FoldGap adds a message to a gap: that of its resource and source, and of its reason if it
// is a gap itself.
func FoldsInto(gap, dropped *Message) bool {
	reason := ReasonOverflow
	if dropped.GapInfo != nil {
		reason = dropped.GapInfo.Reason
	}
	return gap.Resource.GroupResource() == dropped.Resource.GroupResource() &&
		gap.Origin.Source == dropped.Origin.Source &&
		gap.GapInfo.Reason == reason
}

// FoldGap adds a message that the queue gave up to the gaps that stand in its place, one gap for each resource, source
// and reason; gaps is changed in place. A gap takes over the origin of the first message that it stands for: until it
// is delivered, a crash brings everything that it stands for again. FoldGap has the form that pkg/fifo's drop-oldest
// policy asks for.
func FoldGap(gaps []*Message, dropped *Message) []*Message {
	add := GapInfo{
		Resource: GroupResource(
			dropped.Resource,
		),
		From:    dropped.Identity.ResourceVersion,
		To:      dropped.Identity.ResourceVersion,
		Reason:  ReasonOverflow,
		Message: "the queue was full and its policy is drop-oldest",
		Events:  1,
	}
	if dropped.GapInfo != nil { // a gap that was dropped itself: it must not vanish
		add = *dropped.GapInfo
	}
	i := slices.IndexFunc(gaps, func(g *Message) bool { return FoldsInto(g, dropped) })
	if i < 0 {
		gap := gapMessage(dropped, &add)
		gap.Origin = dropped.Origin
		return append(gaps, gap)
	}
	info := *gaps[i].GapInfo
	info.To = add.To
	if !mutant.On("uncounted-drops") {
		info.Events += add.Events
	}
	origin := gaps[i].Origin
	gaps[i] = gapMessage(dropped, &info)
	gaps[i].Origin = origin
	return gaps
}

// gapMessage returns a gap event for the same sink, cluster and resource as m.
func gapMessage(m *Message, info *GapInfo) *Message {
	gap := &Message{
		Type:       Gap,
		Time:       m.Time,
		Resource:   m.Resource,
		Cluster:    m.Cluster,
		ClusterUID: m.ClusterUID,
		ID:         gapID(m.Cluster, info),
		Structured: m.Structured,
		GapInfo:    info,
	}
	gap.Identity.ResourceVersion = info.To
	if m.PartitionKey != "" {
		gap.PartitionKey = controlKey(gap)
	}
	gap.Data, _ = json.Marshal(info) // a struct of strings and a number always marshals
	return gap
}

// controlKey is the Kafka key of a control event: one for each cluster, resource and type, which no object has. On a
// compacted topic it must not take the place of an object's state, nor of what is said of another resource.
func controlKey(m *Message) string {
	return m.Cluster + "/" + GroupResource(m.Resource) + "/" + controlNamePrefix + m.Type.String()
}

// Mergeable reports whether a waiting message may be merged with a later one of the same object: control events
// never are.
func Mergeable(m *Message) bool { return !m.Type.IsControl() }

// Merge returns what remains of two messages about one object (one uid), older before newer, when the state between
// them is given up: the newer state, as an addition if the older was one that the sink has not seen yet. It follows
// client-go's DeltaFIFO, which keeps the last state and never loses a deletion. A restatement takes no change away:
// what the older message says happened has happened, and is told with the newer state, at the newer time.
func Merge(older, newer *Message) *Message {
	if mutant.On("merge-deletions-away") && newer.Type == Deleted {
		return older
	}
	added := older.Type == Added && (newer.Type == Updated || newer.Type == Restated)
	updated := older.Type == Updated && newer.Type == Restated
	if !added && !updated {
		return newer
	}
	merged := *newer
	merged.Type, merged.InitialList = older.Type, older.InitialList
	switch {
	case newer.Type != Restated:
	case older.Identity.ResourceVersion == newer.Identity.ResourceVersion: // the payload may say more than the state
		merged.Data, merged.Identity = older.Data, older.Identity
	default:
		merged.Data = retold(newer.Data, newer.Type, older.Type)
	}
	return &merged
}
