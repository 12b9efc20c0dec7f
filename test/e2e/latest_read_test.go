package e2e

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// stream reads the stream: one message for each subject.
func (m *latestStates) stream() map[string]received {
	m.t.Helper()
	api, closeConn := m.js.api()
	defer closeConn()
	s, err := api.Stream(m.t.Context(), latestStream)
	if err != nil {
		m.t.Fatal(err)
	}
	if c := s.CachedInfo().Config; c.MaxMsgsPerSubject != 1 || !c.AllowMsgTTL {
		m.t.Errorf("the stream is %+v", c)
	}
	entries := map[string]received{}
	for _, r := range m.js.read(latestStream) {
		key := r.subject() + r.attributes["type"]
		if r.object() {
			key = r.attributes["name"]
		}
		if _, twice := entries[key]; twice {
			m.t.Errorf("%s is in the stream twice", key)
		}
		entries[key] = r
	}
	return entries
}

// topic reads the topic from its start: the last record for each key, unless it is a tombstone. There are no other
// records than objects and tombstones.
func (m *latestStates) topic() map[string]received {
	m.t.Helper()
	entries := map[string]received{}
	partitions := readKafka(m.t, m.kafka, latestTopic)
	for p, records := range kafka.ReadAll(m.t, m.kafka, latestTopic) {
		for n, record := range records {
			if key := string(record.Key); record.Value == nil {
				delete(entries, key)
			} else {
				entries[key] = partitions[p][n]
				if !partitions[p][n].object() {
					m.t.Errorf("the topic contains %s", record.Value)
				}
			}
		}
	}
	for key, e := range entries {
		if e.attributes["operation"] == "deleted" {
			m.t.Errorf("the topic will never forget %s: its last record is the deletion, and no tombstone", key)
		}
	}
	return entries
}

// bucket reads the key-value bucket as its clients do.
func (m *latestStates) bucket() map[string]any {
	m.t.Helper()
	api, closeConn := m.js.api()
	defer closeConn()
	kv, err := api.KeyValue(m.t.Context(), latestBucket)
	if err != nil {
		m.t.Fatal(err)
	}
	keys, err := kv.Keys(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	objects := map[string]any{}
	for _, key := range keys {
		e, err := kv.Get(m.t.Context(), key)
		if err != nil {
			m.t.Fatal(err)
		}
		var o map[string]any
		if err := json.Unmarshal(e.Value(), &o); err != nil {
			m.t.Fatal(err)
		}
		if metadata, ok := o["metadata"].(map[string]any); ok {
			objects[metadata["name"].(string)] = o
		} else {
			m.t.Errorf("the bucket contains %s", e.Value())
		}
	}
	return objects
}

// controlEvents reads the control events of the topic.
func (m *latestStates) controlEvents() []received {
	m.t.Helper()
	return slices.Concat(readKafka(m.t, m.kafka, controlTopic)...)
}

// gapsAreApart: the topic and the stream of control events contain one synced event and then one gap event, whose
// position separates the states of before the gap from those of after it.
func (m *latestStates) gapsAreApart() {
	m.t.Helper()
	var gaps []*event.GapInfo
	for where, records := range map[string][]received{"topic": m.controlEvents(), "stream": m.js.read(controlStream)} {
		if len(records) != 2 || records[0].attributes["type"] != "dev.deltabridge.synced" {
			m.t.Fatalf("control events of the %s: %v", where, records)
		}
		gap := new(event.GapInfo)
		if err := json.Unmarshal(
			records[1].data,
			gap,
		); err != nil || gap.Reason != event.ReasonRelist ||
			gap.Position == nil {
			m.t.Fatalf("%s: not a gap with a position: %s, %v", where, records[1].data, err)
		}
		gaps = append(gaps, gap)
		if where != "topic" {
			continue
		}
		before, after := 0, 0
		for p, records := range kafka.ReadAll(m.t, m.kafka, latestTopic) {
			events := readKafka(m.t, m.kafka, latestTopic)[p]
			for n, record := range records {
				at := revision(m.t, cmp.Or(events[n].resourceVersion(), "0"))
				switch isBefore := record.Offset < gap.Position.Offsets[p]; {
				case at == 0: // a tombstone
				case isBefore && at > revision(m.t, gap.From):
					m.t.Errorf("revision %d is before the gap from %s to %s", at, gap.From, gap.To)
				case isBefore:
					before++
				default:
					after++
				}
			}
		}
		m.t.Logf("%d events before the gap, %d after it: %+v", before, after, gap.Position)
		if before < 100 || after < 10 {
			m.t.Errorf("%d events before the gap and %d after it are too few to tell", before, after)
		}
	}
	for _, g := range gaps {
		g.Position = nil
	}
	if !reflect.DeepEqual(gaps[0], gaps[1]) {
		m.t.Errorf("gaps %+v and %+v", gaps[0], gaps[1])
	}
}

// present are the objects of a destination, by name.
func present(entries map[string]received) map[string]any {
	objects := map[string]any{}
	for _, e := range entries {
		if !e.object() || e.attributes["operation"] == "deleted" {
			continue
		}
		var o any
		if json.Unmarshal(e.data, &o) != nil {
			o = "no JSON: " + string(e.data)
		}
		objects[e.attributes["name"]] = o
	}
	return objects
}

// swept returns the entries without the objects that had no event since the last resync began.
func swept(t *testing.T, entries map[string]received) map[string]received {
	t.Helper()
	var since time.Time
	for _, e := range entries {
		var info struct {
			Resync bool
			Since  time.Time
		}
		if e.attributes["type"] == "dev.deltabridge.synced" {
			if err := json.Unmarshal(e.data, &info); err != nil || !info.Resync {
				t.Fatalf("the last synced event is not that of a resync: %s, %v", e.data, err)
			}
			since = info.Since
		}
	}
	if since.IsZero() {
		t.Fatal("there is no synced event")
	}
	left := maps.Clone(entries)
	maps.DeleteFunc(left, func(_ string, e received) bool {
		at, err := time.Parse(time.RFC3339Nano, e.attributes["time"])
		return err == nil && e.object() && at.Before(since)
	})
	return left
}
