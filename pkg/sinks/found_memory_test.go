package sinks_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/test/scale"
	"k8s.io/apimachinery/pkg/types"
)

// Found keeps only the part of a record that identifies the object and its state, whether it was read back, or is that
// of a message that an earlier process has left on disk.
func TestFoundMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("reads many records")
	}
	n := uint64(scale.Of(1<<16, 1<<18))
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for name, note := range map[string]func(found *sinks.Found, uid string, i uint64){
		"read back": func(found *sinks.Found, uid string, i uint64) {
			found.Note(sinks.FoundRecord{
				Part: "events/0", Mark: writer + fmt.Sprintf(" 1234567 m%07d", i%3), ID: uid + ".7", UID: uid, Version: "7",
				Subject: "pods/" + uid,
			})
		},
		"left on disk": func(found *sinks.Found, uid string, _ uint64) {
			m := &event.Message{Type: event.Updated, ID: uid + ".7", PartitionKey: "prod/" + uid, Cluster: "prod"}
			m.Identity = object.Identity{Namespace: "default", Name: uid, UID: types.UID(uid), ResourceVersion: "7"}
			stored, err := m.AppendStored(nil)
			if err == nil {
				m, err = event.ParseStored(stored)
			}
			if err != nil {
				t.Fatal(err)
			}
			found.Sent(m, "events/0", "")
		},
	} {
		found := sinks.Found{Writer: writer}
		before := heap()
		for i := range n {
			note(&found, fmt.Sprintf("5d2c0d4e-%08x-8a94-0f1e2d3c4b5a", i), i)
		}
		each := (heap() - before) / n
		t.Logf("%s: %d bytes for each object", name, each)
		if each > 240 {
			t.Errorf("%s: too much", name)
		}
		runtime.KeepAlive(&found)
	}
}
