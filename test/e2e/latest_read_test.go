package e2e

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

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

// topic reads the topic from its start: the last record for each key, unless it is a tombstone.
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
		if metadata, ok := o["metadata"].(map[string]any); ok { // otherwise it is a gap or synced event
			objects[metadata["name"].(string)] = o
		}
	}
	return objects
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
