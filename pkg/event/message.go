package event

import (
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key identifies an object for ordering: two messages with equal keys must not overtake each other. If an object is
// deleted and re-created with the same name, the old and new objects have the same Key. Key is comparable.
type Key struct {
	Group, Resource, Namespace, Name string
}

// Message is an event that is encoded for one sink. It is immutable after Encode. A field that must survive on disk
// is part of its stored form: see AppendStored.
type Message struct {
	Type Type
	Time time.Time // when the bridge observed the change; of an audit event: its stageTimestamp
	// Read is when the bridge read an audit event from its journal. It is zero for all other events. See Since.
	Read     time.Time
	Resource schema.GroupVersionResource
	Cluster  string // the configured cluster name
	// ClusterUID is the uid of the namespace kube-system. It is empty if it is not known, and the attribute clusteruid is
	// then omitted.
	ClusterUID string
	// Identity identifies the object. For a control event, only ResourceVersion may be set.
	Identity object.Identity

	InitialList       bool
	FinalStateUnknown bool
	LeftFilter        bool

	// Epoch names the period since the last change that can make it necessary to send an event again. Such a change is
	// a change of a filter or of `watch`, a new checkpoint, an etcd restore or, for a queue that drops or merges events, a
	// start of the process. A destination that drops repeated events must not drop an event because it has received the
	// same event in another epoch: in between, the object may have left the stream, or an older state may have been sent.
	// A later epoch is greater.
	Epoch string

	// History names the history of etcd that the resourceVersions belong to. It is empty until etcd is restored to an
	// earlier revision, and differs after each restore. ResourceVersions of two histories cannot be compared.
	History string

	// Delivery identifies the delivery of an event that is repeated on purpose: a restated event, or the events of an
	// initial list that is sent to a new destination. The destination must accept the event even if it already contains an
	// event with this id, but it needs only one event of each object in each delivery. Delivery is empty for all other
	// events, which are delivered once.
	Delivery string

	// IfFound means that a leave or a deletion is sent only if an earlier process sent the object to the destination.
	// Only the destination can determine this. If it does not find the object, the message is settled without being
	// sent.
	IfFound bool
	// Final means that a leave is the last event of the object, because `watch` no longer selects the object. The
	// object may have newer states.
	Final bool

	// Context is sent as attributes. It is nil if the event has no context or if Data contains it.
	Context *Context

	// ID is the CloudEvents id (see the package comment). It is unique within one cluster.
	ID string
	// PartitionKey is the Kafka key. It is empty for sinks without keys.
	PartitionKey string
	// Payload is the form of Data, for the attribute dataschema. It is empty for PayloadObject and for control events.
	Payload Payload
	// Data is the payload, a JSON document. It can share memory with the informer's index and with other sinks.
	Data []byte
	// Structured selects the structured content mode. Sinks must send Body, never Data.
	Structured bool

	// Marks contains further attributes that few messages have. It is usually nil.
	Marks *Marks

	// GapInfo is set for gap events, so that a queue can extend the gap.
	GapInfo *GapInfo
	// ProgressInfo is set for progress events, so that a sink can add the position.
	ProgressInfo *ProgressInfo

	// Origin is the message's position in its source, for the checkpoint. A sink that reads back uses only Origin.Left.
	Origin Origin
}

// Origin is the position of a message within the changes of its source.
type Origin struct {
	Source string // identifies the source
	// Position is the resourceVersion up to which all changes of the source were delivered before this message.
	Position string
	// Seq is the number that is used to settle the message in this process, or 0 if nothing waits for the message to be
	// settled.
	Seq uint64
	// Left reports whether the message was read from disk, where an earlier process may have left it. The source can then
	// bring the message again.
	Left bool
}

// Body returns the content that a sink sends: Data in binary mode, or the whole CloudEvent as a JSON object in
// structured mode. In structured mode, Body encodes the event on each call. The caller must not modify the result.
func (m *Message) Body() []byte {
	if !m.Structured {
		return m.Data
	}
	return m.AppendStructured(make([]byte, 0, len(m.Data)+1024))
}

// ContentType returns the media type of Body that the CloudEvents protocol bindings require.
func (m *Message) ContentType() string {
	if m.Structured {
		return "application/cloudevents+json; charset=UTF-8"
	}
	return dataContentType
}

// Key returns the message's order key. Control events have a separate key per resource.
func (m *Message) Key() Key {
	return Key{m.Resource.Group, m.Resource.Resource, m.Identity.Namespace, m.Identity.Name}
}

// Operation returns what has happened, for people: the name of the type, or left for a leave. The attribute operation
// of a leave is deleted.
func (m *Message) Operation() string {
	if m.LeftFilter {
		return "left"
	}
	return m.Type.String()
}

// Since returns since when the message is on its way through the process.
func (m *Message) Since() time.Time {
	if m.Read.IsZero() {
		return m.Time
	}
	return m.Read
}

// StreamResource returns the resource to which a sink's stream counts the message. For an audit event, this is not the
// resource that the request was about: clients choose that, and it need not exist.
func (m *Message) StreamResource() schema.GroupVersionResource {
	if m.Type == Audit {
		return AuditResource()
	}
	return m.Resource
}

// messageOverhead is the memory that a queued message uses in addition to its strings and data, in bytes: the struct
// and its slot in the queue.
const messageOverhead = 400

// UniqueID returns <cluster>/<id>, which is unique among all clusters that share a destination. The id alone is not
// unique: if a cluster was restored from a copy of another cluster, both have objects with the same uids and
// resourceVersions.
func (m *Message) UniqueID() string { return m.Cluster + "/" + m.ID }

// Size returns the size that counts towards a queue's byte limit: the data, the message's strings and a fixed overhead.
func (m *Message) Size() int64 {
	return int64(len(m.Data) + len(m.ID) + len(m.PartitionKey) + len(m.Identity.Name) + m.Context.size() + messageOverhead)
}

// GroupResource formats the resource as "deployments.apps", or as "pods" for the core group.
func GroupResource(r schema.GroupVersionResource) string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}
