package event

import (
	"encoding/json"
	"strconv"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// The operations in the data of PayloadDebezium.
const (
	debeziumCreate = "c"
	debeziumUpdate = "u"
	debeziumDelete = "d"
	debeziumRead   = "r" // a state without a state before it
)

// debeziumSource describes where a change comes from, in the data of PayloadDebezium.
type debeziumSource struct {
	Connector       string `json:"connector"`
	Cluster         string `json:"cluster"`
	Group           string `json:"group"`
	Version         string `json:"version"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Time            int64  `json:"ts_ms"`
	Snapshot        string `json:"snapshot"` // a string, as in the connectors of Debezium
}

// debezium returns the data for PayloadDebezium. It has the members of Debezium's change events: before, after, op,
// ts_ms and source (https://debezium.io/documentation/reference/connectors/postgresql.html#postgresql-create-events).
//
// Readers that maintain a table refuse an update without the state before it. Such an update is a read.
func (e *Encoder) debezium(ev *Event, m *Message) ([]byte, error) {
	object, err := e.bytes(ev.Resource, ev.Object)
	if err != nil {
		return nil, err
	}
	old, err := e.visibleOld(ev)
	if err != nil {
		return nil, err
	}
	before, after, op := old, object, debeziumRead
	switch {
	case ev.Type == Deleted:
		before, after, op = object, nil, debeziumDelete
	case ev.Type == Added && !ev.InitialList:
		op = debeziumCreate
	case old != nil:
		op = debeziumUpdate
	}
	at := m.Time.UnixMilli()
	source, _ := json.Marshal(debeziumSource{ // Strings and numbers can always be marshaled.
		Connector: "deltabridge", Cluster: e.Cluster,
		Group: m.Resource.Group, Version: m.Resource.Version, Resource: m.Resource.Resource,
		Namespace: m.Identity.Namespace, Name: m.Identity.Name, UID: string(m.Identity.UID),
		ResourceVersion: m.Identity.ResourceVersion, Time: at, Snapshot: strconv.FormatBool(ev.InitialList),
	})
	dst := make([]byte, 0, len(before)+len(after)+len(source)+64)
	dst = appendDebezium(dst, before, after, source, op)
	return append(strconv.AppendInt(append(dst, `,"ts_ms":`...), at, 10), '}'), nil
}

// appendDebezium appends the beginning of the data. A nil state becomes null.
func appendDebezium(dst, before, after, source []byte, op string) []byte {
	dst = appendMember(append(dst, '{'), "before", orNull(before))
	dst = appendMember(dst, "after", orNull(after))
	dst = appendMember(dst, "source", source)
	return appendMember(dst, "op", strconv.AppendQuote(nil, op))
}

func orNull(value []byte) []byte {
	if value == nil {
		return []byte("null")
	}
	return value
}

// isDebezium reports whether data is that of PayloadDebezium, and not an object or a change.
func isDebezium(data []byte) bool { return jsonscan.Member(data, "after") != nil }

// reducedDebezium reduces the state that matters to its metadata, and omits the other one. An update thereby becomes a
// read.
func reducedDebezium(data []byte) ([]byte, error) {
	state, op := jsonscan.Member(data, "after"), debeziumRead
	deleted := string(state) == "null"
	if deleted {
		state, op = jsonscan.Member(data, "before"), debeziumDelete
	} else if string(jsonscan.Member(data, "op")) == strconv.Quote(debeziumCreate) {
		op = debeziumCreate
	}
	before, err := metadataOf(state)
	if err != nil {
		return nil, err
	}
	var after []byte
	if !deleted {
		before, after = nil, before
	}
	dst := appendDebezium(make([]byte, 0, len(data)), before, after, jsonscan.Member(data, "source"), op)
	return append(appendMember(dst, "ts_ms", jsonscan.Member(data, "ts_ms")), '}'), nil
}
