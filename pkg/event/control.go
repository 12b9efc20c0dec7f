package event

import (
	"encoding/json"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
)

// gapID returns the id of a gap event. Gaps with the same resourceVersions and reason have the same id.
func gapID(cluster string, g *GapInfo) string {
	return "gap." + cluster + "." + g.Resource + "." + g.Reason + "." + g.From + "." + g.To
}

// progressID returns the id of a progress event. It contains the time, because the event is sent again while nothing
// happens, and a destination that recognizes repetitions by their ids must not drop it.
func progressID(m *Message, p *ProgressInfo) string {
	return "progress." + m.Cluster + "." + p.Resource + "." + p.ResourceVersion + "." +
		m.Time.UTC().Format(time.RFC3339Nano)
}

// RefusalGap returns a small gap event that replaces a message that the destination rejected, so that consumers of the
// stream can detect the missing message. reason is one of the Reason constants. deadLetter describes where the rejected
// message is kept, and is empty if the message is not kept.
func RefusalGap(m *Message, reason, message, deadLetter string) *Message {
	info := &GapInfo{
		Resource: GroupResource(m.StreamResource()), From: m.Identity.ResourceVersion, To: m.Identity.ResourceVersion,
		Reason: reason, Message: message, Events: 1, DeadLetter: deadLetter,
	}
	if !m.Type.IsControl() {
		info.Event, info.Subject = m.ID, m.Subject()
		if m.Type != Audit {
			info.Operation = m.Type.String()
		}
	}
	gap := gapMessage(m, info)
	// The id begins with the id of the rejected message, because several objects can be rejected at the same
	// resourceVersion of a list.
	gap.ID = m.ID + ".gap"
	if m.Type == Deleted { // The gap event keeps the deletion's key, because a tombstone may have to follow.
		gap.PartitionKey, info.Deletion = m.PartitionKey, m
	}
	return gap
}

// FoldGap returns a gap event that replaces a dropped message and, unless gap is nil, the messages that gap replaces.
// It returns false if gap has another resource, source or reason: there is one gap event for each. The reason is
// ReasonOverflow, unless the dropped message is itself a gap event. The result has the origin of the first message that
// it replaces. If the bridge crashes before the gap event is delivered, it therefore processes all replaced messages
// again. The signature of FoldGap is the one that the drop-oldest policy of pkg/fifo requires.
func FoldGap(gap, dropped *Message) (folded *Message, ok bool) {
	info := GapInfo{
		Resource: GroupResource(dropped.StreamResource()), From: dropped.Identity.ResourceVersion, Reason: ReasonOverflow,
		To: dropped.Identity.ResourceVersion, Message: "the queue was full and its policy is drop-oldest", Events: 1,
	}
	if dropped.GapInfo != nil { // A dropped gap event must not be lost.
		info = *dropped.GapInfo
	}
	origin := dropped.Origin
	if gap != nil {
		if gap.Resource.GroupResource() != dropped.StreamResource().GroupResource() ||
			gap.Origin.Source != origin.Source || gap.GapInfo.Reason != info.Reason {
			return nil, false
		}
		to, events := info.To, info.Events
		info, origin = *gap.GapInfo, gap.Origin
		info.To = to
		if !mutant.On("uncounted-drops") {
			info.Events += events
		}
	}
	folded = gapMessage(dropped, &info)
	folded.Origin = origin
	return folded, true
}

// gapMessage returns a gap event for the same sink, cluster and resource as m.
func gapMessage(m *Message, info *GapInfo) *Message {
	gap := &Message{
		Type: Gap, Time: m.Time, Read: m.Read, Resource: m.StreamResource(), Cluster: m.Cluster, ClusterUID: m.ClusterUID,
		Epoch: m.Epoch, History: m.History, Structured: m.Structured, GapInfo: info,
	}
	gap.encodeControl(nil, m.PartitionKey != "")
	return gap
}

// Apart returns a copy of a gap or progress event for a destination that has no objects: with the key of a control
// event, and with its position in the destination of the objects, which may be nil.
func Apart(m *Message, p *Position) *Message {
	apart := *m
	var info any
	if m.Type == Progress {
		progress := *m.ProgressInfo
		progress.Position = p
		apart.ProgressInfo, info = &progress, &progress
	} else {
		gap := *m.GapInfo
		gap.Position = p
		apart.GapInfo, info = &gap, &gap
	}
	apart.Data, _ = json.Marshal(info) // it contains only strings, numbers and a time
	if m.PartitionKey != "" {
		apart.PartitionKey = controlKey(m)
	}
	return &apart
}

// controlKey returns the Kafka key of a control event. It is unique per cluster, resource and type, and no object has
// the same key. On a compacted topic, a control event therefore replaces neither an object's state nor a control event
// about another resource.
func controlKey(m *Message) string {
	return m.Cluster + "/" + GroupResource(m.Resource) + "/" + controlNamePrefix + m.Type.String()
}

// Mergeable reports whether a queued message may be merged with a later message about the same object. Control events
// and audit events are never merged.
func Mergeable(m *Message) bool { return !m.Type.IsControl() && m.Type != Audit }

// Merge merges two messages about the same object (with the same uid). The result has the newer state; the older state
// is discarded. The result is an addition if the older message was an addition that the sink has not received yet. Like
// client-go's DeltaFIFO, Merge keeps the last state and never loses a deletion. If an addition or update is followed by
// a restated message, the result keeps the type of the older message, because that change did happen. The result then
// has the newer state and the newer time. The result is limited to a destination that has the object (IfFound) only if
// both messages are.
func Merge(older, newer *Message) *Message {
	if mutant.On("merge-deletions-away") && newer.Type == Deleted {
		return older
	}
	added := older.Type == Added && (newer.Type == Updated || newer.Type == Restated)
	updated := older.Type == Updated && newer.Type == Restated
	if !added && !updated {
		if !newer.IfFound || older.IfFound {
			return newer
		}
		certain := *newer
		certain.IfFound = false
		return &certain
	}
	merged := *newer
	merged.Type, merged.InitialList = older.Type, older.InitialList
	return &merged
}
