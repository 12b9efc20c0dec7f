package event

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rare contains the fields of a message that few messages have. It is stored as JSON, and nothing if it is empty. New
// fields are added here, so that they do not change the format.
type rare struct {
	Context  *Context `json:"context,omitempty"`
	GapInfo  *GapInfo `json:"gap,omitempty"`
	Deletion []byte   `json:"deletion,omitempty"` // GapInfo.Deletion in its stored form, without its data
}

// storedStrings returns the strings of a message in the order in which they are stored. apiVersion and kind are those
// of its Identity.
func (m *Message) storedStrings(apiVersion, kind *string) [20]*string {
	id := &m.Identity
	return [...]*string{
		&m.Cluster, &m.ClusterUID, &m.Epoch, &m.History, &m.Delivery, &m.ID, &m.PartitionKey, (*string)(&m.Payload),
		&m.Resource.Group, &m.Resource.Version, &m.Resource.Resource, apiVersion, kind,
		&id.Namespace, &id.Name, (*string)(&id.UID), &id.ResourceVersion, &id.Manager, &m.Origin.Source, &m.Origin.Position,
	}
}

// storedFlags returns the flags of a message in the order in which they are stored, as bits of a byte.
func (m *Message) storedFlags() [6]*bool {
	return [...]*bool{&m.InitialList, &m.FinalStateUnknown, &m.LeftFilter, &m.IfFound, &m.Final, &m.Structured}
}

// storedStart is the length of what precedes the strings: the length of the header, the type, the flags and two times.
const storedStart = 4 + 1 + 1 + 8 + 8

// AppendStored appends the message in its stored form: a header, which begins with its length, and the data. The
// sequence number for settling is not stored, because it is valid only within the process.
func (m *Message) AppendStored(dst []byte) ([]byte, error) {
	start, flags := len(dst), byte(0)
	for n, flag := range m.storedFlags() {
		if *flag {
			flags |= 1 << n
		}
	}
	dst = append(dst, 0, 0, 0, 0, byte(m.Type), flags)
	dst = binary.BigEndian.AppendUint64(dst, nanoseconds(m.Time))
	dst = binary.BigEndian.AppendUint64(dst, nanoseconds(m.Read))
	apiVersion, kind := m.Identity.APIVersion(), m.Identity.Kind()
	for _, text := range m.storedStrings(&apiVersion, &kind) {
		dst = append(binary.AppendUvarint(dst, uint64(len(*text))), *text...)
	}
	if m.Context != nil || m.GapInfo != nil {
		text, err := m.rare()
		if err != nil {
			return dst[:start], fmt.Errorf("store event %s: %w", m.ID, err)
		}
		dst = append(dst, text...)
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return append(dst, m.Data...), nil
}

func (m *Message) rare() ([]byte, error) {
	r := rare{Context: m.Context, GapInfo: m.GapInfo}
	if m.GapInfo != nil && m.GapInfo.Deletion != nil {
		deletion := *m.GapInfo.Deletion
		deletion.Data = nil
		var err error
		if r.Deletion, err = deletion.AppendStored(nil); err != nil {
			return nil, err
		}
	}
	return json.Marshal(r)
}

func nanoseconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

func timeOf(nanoseconds uint64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(nanoseconds)).UTC() //nolint:gosec // what nanoseconds returned
}

var errStored = errors.New("not a stored event")

// ParseStored parses a message that AppendStored wrote, with Origin.Left set. The message retains data.
func ParseStored(data []byte) (*Message, error) {
	if len(data) < storedStart || binary.BigEndian.Uint32(data) < storedStart ||
		uint64(binary.BigEndian.Uint32(data)) > uint64(len(data)) {
		return nil, errStored
	}
	header := data[:binary.BigEndian.Uint32(data)]
	m := &Message{Type: Type(header[4]), Data: data[len(header):], Origin: Origin{Left: true}}
	if m.Type > lastType {
		return nil, fmt.Errorf("%w: unknown type %d", errStored, m.Type)
	}
	for n, flag := range m.storedFlags() {
		*flag = header[5]&(1<<n) != 0
	}
	m.Time, m.Read = timeOf(binary.BigEndian.Uint64(header[6:])), timeOf(binary.BigEndian.Uint64(header[14:]))
	text, at := string(header), storedStart // all strings of the message share this allocation
	var apiVersion, kind string
	for _, field := range m.storedStrings(&apiVersion, &kind) {
		length, size := binary.Uvarint(header[at:])
		if at += size; size <= 0 || length > uint64(len(header)-at) {
			return nil, errStored
		}
		*field = text[at : at+int(length)] //nolint:gosec // at most len(header)
		at += int(length)                  //nolint:gosec // as above
	}
	m.Identity = m.Identity.WithKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	return m, m.parseRare(header[at:])
}

func (m *Message) parseRare(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	var r rare
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%w: %w", errStored, err)
	}
	m.Context, m.GapInfo = r.Context, r.GapInfo
	if r.Deletion == nil || m.GapInfo == nil {
		return nil
	}
	var err error
	m.GapInfo.Deletion, err = ParseStored(r.Deletion)
	return err
}
