package event

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// stored is a message on disk, apart from its data. The names are short because each event has them.
type stored struct {
	Type       Type      `json:"t"`
	Time       time.Time `json:"at"`
	Group      string    `json:"g,omitempty"`
	Version    string    `json:"v,omitempty"`
	Resource   string    `json:"r"`
	Cluster    string    `json:"c,omitempty"`
	ClusterUID string    `json:"cu,omitempty"`
	APIVersion string    `json:"av,omitempty"`
	Kind       string    `json:"k,omitempty"`
	Namespace  string    `json:"ns,omitempty"`
	Name       string    `json:"n,omitempty"`
	UID        string    `json:"u,omitempty"`
	RV         string    `json:"rv,omitempty"`
	Manager    string    `json:"m,omitempty"`
	Initial    bool      `json:"i,omitempty"`
	Unknown    bool      `json:"f,omitempty"`
	Left       bool      `json:"l,omitempty"`
	Again      bool      `json:"o,omitempty"`
	ID         string    `json:"id"`
	Key        string    `json:"pk,omitempty"`
	Structured bool      `json:"s,omitempty"`
	Gap        *GapInfo  `json:"gap,omitempty"`
	Context    *Context  `json:"x,omitempty"`
	Source     string    `json:"src,omitempty"`
	Position   string    `json:"pos,omitempty"`
	Deletion   *stored   `json:"del,omitempty"` // GapInfo.Deletion, without its data
}

func (m *Message) stored() *stored {
	s := &stored{
		Type: m.Type, Time: m.Time, Group: m.Resource.Group, Version: m.Resource.Version, Resource: m.Resource.Resource,
		Cluster: m.Cluster, ClusterUID: m.ClusterUID, APIVersion: m.Identity.APIVersion(), Kind: m.Identity.Kind(), Namespace: m.Identity.Namespace,
		Name: m.Identity.Name, UID: string(m.Identity.UID), RV: m.Identity.ResourceVersion, Manager: m.Identity.Manager,
		Initial: m.InitialList, Unknown: m.FinalStateUnknown, Left: m.LeftFilter, Again: m.Again, ID: m.ID, Key: m.PartitionKey,
		Structured: m.Structured, Gap: m.GapInfo, Context: m.Context, Source: m.Origin.Source, Position: m.Origin.Position,
	}
	if m.GapInfo != nil && m.GapInfo.Deletion != nil {
		s.Deletion = m.GapInfo.Deletion.stored()
	}
	return s
}

func (s *stored) message(data []byte) *Message {
	m := &Message{
		Type: s.Type, Time: s.Time, Resource: schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource},
		Cluster: s.Cluster, ClusterUID: s.ClusterUID, InitialList: s.Initial, FinalStateUnknown: s.Unknown, LeftFilter: s.Left, Again: s.Again, ID: s.ID,
		PartitionKey: s.Key, Structured: s.Structured, GapInfo: s.Gap, Context: s.Context, Data: data,
		Origin: Origin{Source: s.Source, Position: s.Position},
	}
	m.Identity = object.NewIdentity(schema.FromAPIVersionAndKind(s.APIVersion, s.Kind))
	m.Identity.Namespace, m.Identity.Name, m.Identity.UID = s.Namespace, s.Name, types.UID(s.UID)
	m.Identity.ResourceVersion, m.Identity.Manager = s.RV, s.Manager
	if m.GapInfo != nil && s.Deletion != nil {
		m.GapInfo.Deletion = s.Deletion.message(nil)
	}
	return m
}

// AppendStored appends the message in the form in which it can lie on disk: the length of the head as four bytes, the
// head as JSON, the data. The number by which it is settled is not kept: it belongs to the process.
func (m *Message) AppendStored(dst []byte) ([]byte, error) {
	head, err := json.Marshal(m.stored())
	if err != nil {
		return dst, fmt.Errorf("store event %s: %w", m.ID, err)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(head)))
	dst = append(dst, head...)
	return append(dst, m.Data...), nil
}

var errStored = errors.New("not a stored event")

// ParseStored reads what AppendStored wrote. The message keeps data.
func ParseStored(data []byte) (*Message, error) {
	if len(data) < 4 || uint64(binary.BigEndian.Uint32(data)) > uint64(len(data)-4) {
		return nil, errStored
	}
	end := 4 + int(binary.BigEndian.Uint32(data))
	var s stored
	if err := json.Unmarshal(data[4:end], &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errStored, err)
	}
	return s.message(data[end:]), nil
}
