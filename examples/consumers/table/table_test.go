package main

import (
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// of makes an event of its attributes. A tombstone has no type.
func of(partition int32, offset int64, key, kind, id string, version int, more ...string) event {
	attributes := map[string]string{
		"type": kind, "source": "/clusters/c", "subject": "pods/a/" + key, "id": id, "uid": id[:1],
		"resourceversion": strconv.Itoa(version),
	}
	r := &kgo.Record{Key: []byte(key), Partition: partition, Offset: offset}
	if kind != "" {
		r.Value = []byte("{}")
	}
	for n := 0; n < len(more); n += 2 {
		attributes[more[n]] = more[n+1]
	}
	for name, value := range attributes {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	return newEvent(r)
}

const (
	updated  = "dev.deltabridge.object.updated"
	deleted  = "dev.deltabridge.object.deleted"
	progress = "dev.deltabridge.progress"
)

func newTable() *table {
	return &table{
		objects: map[string]object{}, required: map[string]uint64{"/clusters/c/pods": 20},
		written: map[int32]int64{0: 5, 1: 3}, progress: map[int32]map[string]uint64{},
	}
}

func TestTheTableIsComplete(t *testing.T) {
	table := newTable()
	for _, step := range []struct {
		name string
		e    event
		want bool
	}{
		{"an object", of(0, 4, "a", updated, "a.25", 25), false},
		{"progress of one partition", of(0, 5, "_progress", progress, "p", 20), false},
		{"progress from before the start", of(1, 2, "_progress", progress, "p", 30), false},
		{"not up to what is required", of(1, 3, "_progress", progress, "p", 19), false},
		{"of another resource", of(1, 4, "_progress", progress, "p", 30, "subject", "nodes"), false},
		{"of each partition", of(1, 5, "_progress", progress, "p", 20, "subject", "pods"), true},
	} {
		if got := table.fill(step.e); got != step.want {
			t.Errorf("%s: complete is %t", step.name, got)
		}
	}
}

func TestChangesAfterTheTable(t *testing.T) {
	for _, test := range []struct {
		name string
		e    event
		want bool
	}{
		{"the state of the table", of(0, 9, "a", updated, "a.10", 10), false},
		{"an older state", of(0, 9, "a", updated, "a.9", 9), false},
		{"a newer state", of(0, 9, "a", updated, "a.11", 11), true},
		{"a leave without a change", of(0, 9, "a", deleted, "a.10.left", 10), true},
		{"a deletion that the bridge did not see", of(0, 9, "a", deleted, "a.deleted", 8, "finalstateunknown", "true"), true},
		{"that of another object", of(0, 9, "a", deleted, "x.deleted", 8, "finalstateunknown", "true"), false},
		{"the deletion in the table", of(0, 9, "b", deleted, "b.deleted", 12), false},
		{"a state before that", of(0, 9, "b", updated, "b.11", 11), false},
		{"a new object with the same name", of(0, 9, "b", updated, "n.13", 13), true},
		{"an object that is not in the table", of(0, 9, "c", updated, "c.1", 1), true},
		{"a tombstone", of(0, 9, "a", "", "a.deleted", 11), false},
	} {
		table := newTable()
		table.fill(of(0, 1, "a", updated, "a.30", 30)) // before etcd was restored
		table.fill(of(0, 2, "a", updated, "a.10", 10))
		table.fill(of(0, 3, "b", updated, "b.11", 11))
		table.fill(of(0, 4, "b", "", "b.deleted", 12))
		if got := table.apply(test.e); got != test.want {
			t.Errorf("%s: apply is %t", test.name, got)
		}
		if table.apply(test.e) {
			t.Errorf("%s: it is applied twice", test.name)
		}
	}
}

func TestWentBack(t *testing.T) {
	for data, want := range map[string]bool{
		`{"from":"9","to":"10"}`: false, `{"from":"10","to":"9"}`: true, `{"from":"9","to":""}`: false, `{}`: false,
	} {
		e := event{record: &kgo.Record{Value: []byte(data)}, attributes: map[string]string{"type": "dev.deltabridge.gap"}}
		if got := e.wentBack(); got != want {
			t.Errorf("%s: %t", data, got)
		}
	}
}
