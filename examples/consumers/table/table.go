package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

var errWentBack = errors.New("etcd was restored: delete the records before that gap event from the topic")

// objectTypes begins the types of events about objects: added, updated, deleted and restated.
const objectTypes = "dev.deltabridge.object."

// event is a record, and the attributes in its headers without their prefix.
type event struct {
	record     *kgo.Record
	attributes map[string]string
	version    uint64 // the resourceVersion; 0 if it has none
}

func newEvent(record *kgo.Record) event {
	e := event{record: record, attributes: map[string]string{}}
	for _, h := range record.Headers {
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			e.attributes[name] = string(h.Value)
		}
	}
	e.version, _ = strconv.ParseUint(e.attributes["resourceversion"], 10, 64)
	return e
}

// resource names the cluster and the resource. The subject of a progress event is only the resource.
func (e event) resource() string {
	resource, _, _ := strings.Cut(e.attributes["subject"], "/")
	return e.attributes["source"] + "/" + resource
}

// wentBack reports whether resourceVersions began again at a lower number, so that they cannot be compared.
func (e event) wentBack() bool {
	var gap struct {
		From, To uint64 `json:",string"`
	}
	isGap := e.attributes["type"] == "dev.deltabridge.gap" && json.Unmarshal(e.record.Value, &gap) == nil
	return isGap && gap.To < gap.From
}

// isObject reports whether the event is about an object. A tombstone only has the attributes id, uid and
// resourceversion.
func (e event) isObject() bool {
	return e.record.Value == nil && e.version > 0 || strings.HasPrefix(e.attributes["type"], objectTypes)
}

// object is the last that is known of an object. It stays when the object is gone.
type object struct {
	subject, id, uid string
	version          uint64
	gone             bool
}

// table has the objects of the compacted topic, and knows whether it is complete.
type table struct {
	objects  map[string]object           // by the key of their records, which is the same in both topics
	required map[string]uint64           // by resource: the table must have everything up to here
	written  map[int32]int64             // by partition: the end when required was determined
	progress map[int32]map[string]uint64 // by partition and resource: of the progress events after that end
}

// fill applies the next record of a partition. It returns true when the table is complete: each partition has a
// progress event that is newer than the start of this program, and that covers what is required.
func (t *table) fill(e event) (complete bool) {
	partition := e.record.Partition
	if e.isObject() {
		t.set(e) // the last record of a key counts
	}
	if e.attributes["type"] != "dev.deltabridge.progress" || e.record.Offset < t.written[partition] {
		return false
	}
	if t.progress[partition] == nil {
		t.progress[partition] = map[string]uint64{}
	}
	t.progress[partition][e.resource()] = e.version
	for partition := range t.written {
		for resource, version := range t.required {
			if t.progress[partition][resource] < version {
				return false
			}
		}
	}
	return len(t.progress) == len(t.written)
}

func (t *table) set(e event) {
	t.objects[string(e.record.Key)] = object{
		subject: e.attributes["subject"], id: e.attributes["id"], uid: e.attributes["uid"], version: e.version,
		gone: e.record.Value == nil || e.attributes["type"] == objectTypes+"deleted",
	}
}

// apply applies a change, and returns false if the table has it already, or a newer state.
func (t *table) apply(e event) bool {
	known := t.objects[string(e.record.Key)]
	var isNew bool
	switch {
	case e.record.Value == nil: // a tombstone: its deletion came before it
	case e.attributes["finalstateunknown"] == "true": // has the last resourceVersion that the bridge knew
		isNew = known.uid == e.attributes["uid"] && !known.gone
		e.version = max(e.version, known.version)
	default: // an object that leaves a filter, or enters one, can have the same resourceVersion as before
		isNew = e.version > known.version || e.version == known.version && e.attributes["id"] != known.id
	}
	if isNew {
		t.set(e)
	}
	return isNew
}
