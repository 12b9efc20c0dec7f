package sinktest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Message returns version v of an object with the given name. Its data has about size bytes. The name may contain
// characters that a subject or a header can't contain; sinks must encode them.
func Message(name string, v, size int) *event.Message {
	m := &event.Message{
		Type:     event.Updated,
		Time:     time.Date(2026, 1, 2, 3, 4, 5, v, time.UTC),
		Resource: schema.GroupVersionResource{Group: "apps.example.com", Version: "v1", Resource: "things"},
		Cluster:  "test",
	}
	m.Identity.Namespace, m.Identity.Name = "default", name
	m.Identity.UID = types.UID("uid-" + name)
	m.Identity.ResourceVersion = strconv.Itoa(1000 + v)
	m.Identity.Manager = `kubectl "edit" 100% ü`
	m.ID = string(m.Identity.UID) + "." + m.Identity.ResourceVersion
	m.PartitionKey = "things/default/" + name
	data := fmt.Sprintf(`{"metadata":{"name":%q},"version":%d,"fill":"`, name, v)
	m.Data = []byte(data + strings.Repeat("x", max(size-len(data)-2, 0)) + `"}`)
	return m
}

// Messages returns versions 1 to versions of the given number of objects, in turn: o0 v1, o1 v1, …, o0 v2, o1 v2, …
func Messages(objects, versions int) []*event.Message {
	var out []*event.Message
	for v := range versions {
		for o := range objects {
			out = append(out, Message(fmt.Sprintf("o%d", o), v+1, 300))
		}
	}
	return out
}

// Gap returns a control event for the same resource as Message.
func Gap() *event.Message {
	return event.RefusalGap(Message("o0", 1, 0), event.ReasonRefused, "because", "")
}

// expect compares the records of a destination with the messages that were sent. If repeats is true, a message may be
// repeated directly, or after an unclear failure before a later message of the same object is sent. Without the
// repetitions, the messages of each object must be complete and in order.
func expect(t testing.TB, records []Record, sent []*event.Message, repeats bool) {
	t.Helper()
	byID := make(map[string]*event.Message, len(sent))
	want := make(map[event.Key][]string)
	for _, m := range sent {
		byID[m.ID] = m
		want[m.Key()] = append(want[m.Key()], m.ID)
	}
	got := make(map[event.Key][]string)
	where := make(map[event.Key]string)
	for _, r := range records {
		m := byID[r.Attributes["id"]]
		if m == nil {
			t.Fatalf("the destination holds an event that nobody sent: %q %v", r.Key, r.Attributes)
		}
		want := m.Headers
		if r.Whole {
			want = m.Attributes
		}
		if diff := cmp.Diff(maps.Collect(want), r.Attributes); diff != "" {
			t.Fatalf("attributes of %s at %q (-sent +held):\n%s", m.ID, r.Key, diff)
		}
		if string(r.Data) != string(m.Data) {
			t.Fatalf("data of %s: held %.200q, sent %.200q", m.ID, r.Data, m.Data)
		}
		k := m.Key()
		if p, ok := where[k]; ok && p != r.Partition {
			t.Errorf("object %v is in two partitions, %q and %q", k, p, r.Partition)
		}
		where[k] = r.Partition
		if ids := got[k]; repeats && len(ids) > 0 && ids[len(ids)-1] == m.ID {
			continue
		}
		got[k] = append(got[k], m.ID)
	}
	for k, ids := range want {
		if diff := cmp.Diff(ids, got[k]); diff != "" {
			t.Fatalf("events of %v (-sent +held):\n%s", k, diff)
		}
	}
}
