package event

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stored is a message in its stored form, without Data. It embeds the tagged fields of Message, of its Identity and of
// its Origin. The other fields, such as Resource, are stored as separate strings. The JSON names are short because
// every stored message contains them.
type stored struct {
	Message
	Group      string `json:"g,omitempty"`
	Version    string `json:"v,omitempty"`
	Resource   string `json:"r"`
	APIVersion string `json:"av,omitempty"`
	Kind       string `json:"k,omitempty"`
	object.Identity
	Origin
	Deletion *stored `json:"del,omitempty"` // GapInfo.Deletion, without its data
}

func (m *Message) stored() (s stored) {
	s = stored{
		Message: *m, Group: m.Resource.Group, Version: m.Resource.Version, Resource: m.Resource.Resource,
		APIVersion: m.Identity.APIVersion(), Kind: m.Identity.Kind(), Identity: m.Identity, Origin: m.Origin,
	}
	if m.GapInfo != nil && m.GapInfo.Deletion != nil {
		s.Deletion = new(m.GapInfo.Deletion.stored())
	}
	return s
}

func (s *stored) message(data []byte) *Message {
	m := s.Message
	m.Data, m.Origin = data, s.Origin
	m.Origin.Left = true
	m.Resource = schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource}
	m.Identity = s.Identity.WithKind(schema.FromAPIVersionAndKind(s.APIVersion, s.Kind))
	if m.GapInfo != nil && s.Deletion != nil {
		m.GapInfo.Deletion = s.Deletion.message(nil)
	}
	return &m
}

// AppendStored appends the message in its stored form: the length of the header in four bytes, the header as JSON, and
// the data. The sequence number for settling is not stored, because it is valid only within the process.
func (m *Message) AppendStored(dst []byte) ([]byte, error) {
	start, s := len(dst), m.stored()
	whole, ok := s.appendTo(append(dst, 0, 0, 0, 0))
	if !ok {
		head, err := json.Marshal(m.stored()) // not s, which would then never be on the stack
		if err != nil {
			return dst, fmt.Errorf("store event %s: %w", m.ID, err)
		}
		whole = append(whole[:start+4], head...)
	}
	binary.BigEndian.PutUint32(whole[start:], uint32(len(whole)-start-4))
	return append(whole, m.Data...), nil
}

var errStored = errors.New("not a stored event")

// ParseStored parses a message that AppendStored wrote, with Origin.Left set. The message retains data.
func ParseStored(data []byte) (*Message, error) {
	if len(data) < 4 || uint64(binary.BigEndian.Uint32(data)) > uint64(len(data)-4) {
		return nil, errStored
	}
	end := 4 + int(binary.BigEndian.Uint32(data))
	var s stored
	if !s.parse(data[4:end]) {
		var rare stored // not s, which would then never be on the stack
		if err := json.Unmarshal(data[4:end], &rare); err != nil {
			return nil, fmt.Errorf("%w: %w", errStored, err)
		}
		s = rare
	}
	if s.Type > lastType {
		return nil, fmt.Errorf("%w: unknown type %d", errStored, s.Type)
	}
	return s.message(data[end:]), nil
}
