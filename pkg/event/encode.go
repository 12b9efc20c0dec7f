package event

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Payload is the form of an event's data.
type Payload string

const (
	// PayloadObject is the object as the API server sent it, without managedFields. For a deletion it is the object's last
	// state.
	PayloadObject Payload = "object"
	// PayloadChange describes a change: the new and old states, the difference between them as a patch and as a list of
	// paths, and the field managers that own the changed fields.
	PayloadChange Payload = "change"
	// PayloadMetadata contains only apiVersion, kind and metadata.
	PayloadMetadata Payload = "metadata"
	// PayloadDebezium has both states in the form of Debezium's change events, for programs that read those.
	PayloadDebezium Payload = "debezium"
)

// Content is the CloudEvents content mode.
type Content string

const (
	// ContentBinary sends the attributes as headers. The message body is the payload.
	ContentBinary Content = "binary"
	// ContentStructured sends the attributes and the payload as one JSON object.
	ContentStructured Content = "structured"
)

// Encoder encodes events as messages for one sink. Its fields must not change after the first call to Encode. It is
// safe for concurrent use.
type Encoder struct {
	Cluster string
	Payload Payload // The default is PayloadObject.
	Content Content // The default is ContentBinary.
	// PartitionKey is the template of the Kafka key. It is nil if the sink does not use keys.
	PartitionKey *Template
	// Redactor replaces secret values with fingerprints. If it is nil, secret values are sent unchanged.
	Redactor *redact.Redactor
	// OnOldMissing is called with the cause if the state before an update is not available. The event is then sent without
	// the old state. OnOldMissing can be nil.
	OnOldMissing func(error)
}

// Encode encodes an event as a message. The caller sets ClusterUID, Epoch, History, Delivery and Origin of the message.
// Encode reads the bytes of the event's objects and does not retain the objects, but the message's Data can share
// memory with the object's Raw. An error means that the object is not valid or that its bytes are not available. The
// message is then returned without data, for RefusalGap. Errors never contain parts of the object, because errors are
// logged and sent in gap events.
func (e *Encoder) Encode(ev Event) (*Message, error) {
	m := &Message{
		Type:        ev.Type,
		Time:        ev.Time,
		Resource:    ev.Resource,
		Cluster:     e.Cluster,
		InitialList: ev.InitialList,
		IfFound:     ev.IfFound,
		Final:       ev.Final,
		Structured:  e.Content == ContentStructured,
		GapInfo:     ev.GapInfo,

		ProgressInfo: ev.ProgressInfo,
	}
	if ev.Type.IsControl() {
		m.encodeControl(ev.SyncedInfo, e.PartitionKey != nil)
		return m, nil
	}
	if ev.Type == Audit {
		return m, e.encodeAudit(m, ev.Audit)
	}
	m.Identity = ev.Object.Identity
	m.FinalStateUnknown = ev.Object.FinalStateUnknown && ev.LeftAt == ""
	m.LeftFilter = ev.LeftAt != ""
	if m.LeftFilter {
		m.Identity.ResourceVersion = ev.LeftAt
	}
	m.ID = objectID(m, ev.Selected, ev.Change)
	if e.Payload != PayloadObject {
		m.Payload = e.Payload
	}
	if e.PartitionKey != nil {
		m.PartitionKey = e.PartitionKey.Expand(m)
	}
	var err error
	m.Context = ev.Context
	m.Data, err = e.payload(&ev, m)
	return m, err
}

// objectID returns the event id of a change. See the package comment for the format.
func objectID(m *Message, selected bool, change string) string {
	id := string(m.Identity.UID)
	if m.Type != Deleted || m.LeftFilter || selected {
		id += "." + m.Identity.ResourceVersion
	}
	switch {
	case m.LeftFilter:
		id += ".left"
	case m.Type == Deleted:
		id += ".deleted"
	}
	if change != "" {
		id += ".filter." + change
	}
	return id
}

// encodeControl sets what a control event contains in addition to its GapInfo or ProgressInfo. synced is the data of a
// synced event.
func (m *Message) encodeControl(synced *SyncedInfo, hasKey bool) {
	var info any
	switch m.Type {
	case Synced:
		m.Identity.ResourceVersion, m.ID, info = synced.ResourceVersion, syncedID(m.Cluster, synced), synced
	case Progress:
		p := m.ProgressInfo
		m.Identity.ResourceVersion, m.ID, info = p.ResourceVersion, progressID(m, p), p
	default:
		m.Identity.ResourceVersion, m.ID, info = m.GapInfo.To, gapID(m.Cluster, m.GapInfo), m.GapInfo
	}
	if hasKey {
		m.PartitionKey = controlKey(m)
	}
	m.Data, _ = json.Marshal(info) // A struct of strings, numbers and a time can always be marshaled.
}

func syncedID(cluster string, s *SyncedInfo) string {
	id := "synced." + cluster + "." + s.Resource
	if s.Namespace != "" {
		id += "/" + s.Namespace
	}
	id += "." + s.ResourceVersion
	if s.Since != nil {
		id += "." + s.Since.UTC().Format(time.RFC3339Nano)
	}
	return id
}

func (e *Encoder) payload(ev *Event, m *Message) ([]byte, error) {
	switch e.Payload {
	case PayloadChange:
		return e.change(ev)
	case PayloadDebezium:
		return e.debezium(ev, m)
	}
	o := ev.Object
	raw, err := e.bytes(ev.Resource, ev.Object)
	if mutant.On("old-content") && ev.Old != nil {
		raw, err = e.bytes(ev.Resource, ev.Old)
	}
	if err != nil || e.Payload != PayloadMetadata {
		return raw, err
	}
	metadata, err := metadataOf(raw)
	if err != nil {
		return nil, fmt.Errorf("read metadata of %s %s/%s: %w", o.Kind(), o.Namespace, o.Name, err)
	}
	return metadata, nil
}

// bytes returns the object's bytes without the secret values that this sink must not receive. All payloads are based on
// these bytes.
func (e *Encoder) bytes(resource schema.GroupVersionResource, o *object.Object) ([]byte, error) {
	raw, err := o.Bytes()
	if err != nil || o.Hidden {
		return raw, err
	}
	return e.Redactor.Redact(resource, o, raw)
}
