package event

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Payload is the form of an event's data.
type Payload string

const (
	// PayloadObject is the object as the API server sent it, less managedFields; for a deletion its last state.
	PayloadObject Payload = "object"
	// PayloadChange is what a change made of the object: the new and the old state, the difference between them as a patch
	// and as paths, and who owns what changed.
	PayloadChange Payload = "change"
	// PayloadMetadata is apiVersion, kind and metadata alone.
	PayloadMetadata Payload = "metadata"
)

// Content is the CloudEvents content mode.
type Content string

const (
	// ContentBinary puts the attributes into headers; the message body is the payload.
	ContentBinary Content = "binary"
	// ContentStructured puts attributes and payload into one JSON object.
	ContentStructured Content = "structured"
)

// Encoder turns events into messages for one sink. Its fields must not change after the first Encode; it is safe
// for concurrent use.
type Encoder struct {
	Cluster string
	// ClusterUID becomes the attribute clusteruid; empty: there is none.
	ClusterUID string
	Payload    Payload // empty: PayloadObject
	Content    Content // empty: ContentBinary
	Patch      Patch   // of PayloadChange; empty: PatchJSON
	// PartitionKey is the template of the Kafka key; nil where the sink has none.
	PartitionKey *Template
	// ContextInData puts an event's Context into the data of PayloadChange and PayloadMetadata, instead of attributes.
	// It has no meaning for PayloadObject.
	ContextInData bool
	// Redactor hides secret values; nil sends them in clear. What it has hidden before costs no more than a look.
	Redactor *redact.Redactor
	// OnOldMissing is called where the state before an update can't be had, with the cause: the event is sent without it.
	// Nil is allowed.
	OnOldMissing func(error)

	once   sync.Once
	source string                 // the attribute, of Cluster
	second atomic.Pointer[second] // of the last event
}

// Encode makes the message. The event's objects are asked for their bytes and not kept, but the object's Raw may become
// the message's Data. An error means that the object is not what the API server should send, or that its bytes can't be
// had. It never quotes the object: it is logged, and a gap event says it to the sink.
func (e *Encoder) Encode(ev Event) (*Message, error) {
	m := &Message{
		Type: ev.Type, Time: ev.Time, Resource: ev.Resource, Cluster: e.Cluster, ClusterUID: e.ClusterUID,
		InitialList: ev.InitialList, Again: ev.Again, Structured: e.Content == ContentStructured, GapInfo: ev.GapInfo,
	}
	var err error
	if ev.Type.IsControl() {
		err = m.encodeControl(ev)
	} else {
		m.Identity = ev.Object.Identity
		m.FinalStateUnknown = ev.Object.FinalStateUnknown && ev.LeftAt == ""
		m.LeftFilter = ev.LeftAt != ""
		if m.LeftFilter {
			m.Identity.ResourceVersion = ev.LeftAt
		}
		e.render(m, &ev)
		if m.Data, err = e.payload(&ev); err == nil && ev.Context != nil {
			e.addContext(m, ev.Context)
		}
	}
	if err != nil {
		return nil, err
	}
	switch {
	case e.PartitionKey == nil:
	case ev.Type.IsControl():
		m.PartitionKey = controlKey(m)
	default:
		m.PartitionKey = e.PartitionKey.Expand(m)
	}
	return m, nil
}

// addContext puts the context into the data or the attributes, as configured.
func (e *Encoder) addContext(m *Message, c *Context) {
	if e.ContextInData && (e.Payload == PayloadChange || e.Payload == PayloadMetadata) {
		m.Data = c.withContext(m.Data)
	} else {
		m.Context = c
	}
}

// render sets the strings that consist of several parts, with one allocation for all.
func (e *Encoder) render(m *Message, ev *Event) {
	var buffer [256]byte
	text := append(append(buffer[:0], e.Cluster...), '/')
	cluster := len(text)
	text = appendObjectID(text, m, ev.Selected, ev.Change)
	id := len(text)
	text = append(text, m.Resource.Resource...)
	if m.Resource.Group != "" {
		text = append(append(text, '.'), m.Resource.Group...)
	}
	text = append(append(text, '/'), m.Identity.Namespace...)
	text = append(append(text, '/'), m.Identity.Name...)
	subject := len(text)
	text = e.appendTime(text, m.Time)
	all := string(text)
	m.ID, m.subject, m.time, m.uniqueID = all[cluster:id], all[id:subject], all[subject:], all[:id]
	e.once.Do(func() { e.source = sourcePrefix + e.Cluster })
	m.source = e.source
}

// second is a time without its fraction.
type second struct {
	unix int64
	text string
}

// appendTime appends t as time.RFC3339Nano has it, in UTC. Of the events of one second only the fraction differs.
func (e *Encoder) appendTime(dst []byte, t time.Time) []byte {
	last := e.second.Load()
	if unix := t.Unix(); last == nil || last.unix != unix {
		last = &second{unix, t.UTC().Format("2006-01-02T15:04:05")}
		e.second.Store(last)
	}
	return append(t.AppendFormat(append(dst, last.text...), ".999999999"), 'Z')
}

// appendObjectID appends the id of a change: see the package comment.
func appendObjectID(dst []byte, m *Message, selected bool, change string) []byte {
	dst = append(dst, m.Identity.UID...)
	if m.Type != Deleted || m.LeftFilter || selected {
		dst = append(append(dst, '.'), m.Identity.ResourceVersion...)
	}
	switch {
	case m.LeftFilter:
		dst = append(dst, leftSuffix...)
	case m.Type == Deleted:
		dst = append(dst, deletedSuffix...)
	}
	if change != "" {
		dst = append(append(dst, filterInfix...), change...)
	}
	return dst
}

func (m *Message) encodeControl(ev Event) error {
	var info any = ev.GapInfo
	if ev.Type == Synced {
		info = ev.SyncedInfo
		m.Identity.ResourceVersion = ev.SyncedInfo.ResourceVersion
		m.ID = syncedID(m.Cluster, ev.SyncedInfo)
	} else {
		m.Identity.ResourceVersion = ev.GapInfo.To
		m.ID = gapID(m.Cluster, ev.GapInfo)
	}
	data, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("encode %s event: %w", ev.Type, err)
	}
	m.Data = data
	return nil
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

func (e *Encoder) payload(ev *Event) ([]byte, error) {
	if e.Payload == PayloadChange {
		return e.change(ev)
	}
	o := ev.Object
	if mutant.On("old-content") && ev.Old != nil {
		o = ev.Old
	}
	raw, err := e.bytes(ev.Resource, o)
	if err != nil || e.Payload != PayloadMetadata {
		return raw, err
	}
	metadata, err := metadataOf(raw)
	if err != nil {
		return nil, fmt.Errorf("read metadata of %s %s/%s: %w", o.Kind(), o.Namespace, o.Name, err)
	}
	return metadata, nil
}

// bytes returns the object without the values that this sink must not see. Payloads are made of these bytes only.
func (e *Encoder) bytes(resource schema.GroupVersionResource, o *object.Object) ([]byte, error) {
	raw, err := o.Bytes()
	if err != nil || o.Hidden {
		return raw, err
	}
	return e.Redactor.Redact(resource, o, raw)
}
