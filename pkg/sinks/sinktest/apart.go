package sinktest

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Separator is implemented by a Destination whose sinks can send control events to another place.
type Separator interface {
	// Separate lets new sinks send control events to another place, which does not exist yet. It must be called before
	// NewSink.
	Separate(t *testing.T)
	// AddPlace creates the place.
	AddPlace(t *testing.T)
	// ControlRecords returns the messages in the place.
	ControlRecords(t testing.TB) []Record
	// Before returns how many events of the destination are before a position.
	Before(t testing.TB, p event.Position) int
}

func separator(t *testing.T, d Destination) Separator {
	t.Helper()
	s, ok := d.(Separator)
	if !ok {
		t.Skip("the destination has no other place for control events")
	}
	s.Separate(t)
	return s
}

// synced returns a synced event for the same resource as Message.
func synced(t *testing.T) *event.Message {
	t.Helper()
	m := Message("o0", 1, 0)
	return controlEvent(t, event.Event{Type: event.Synced, Time: m.Time, SyncedInfo: &event.SyncedInfo{
		Resource: event.GroupResource(m.Resource), ResourceVersion: "1009", Objects: 10,
	}})
}

// controlEvent encodes a control event for the same resource as Message.
func controlEvent(t *testing.T, ev event.Event) *event.Message {
	t.Helper()
	m := Message("o0", 1, 0)
	key, err := event.ParseTemplate("{uid}", event.EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	ev.Resource = m.Resource
	control, err := (&event.Encoder{Cluster: m.Cluster, PartitionKey: key}).Encode(ev)
	if err != nil {
		t.Fatal(err)
	}
	return control
}

// testControlEventsApart tests that objects and control events go to different places, and that a gap event contains
// its position among the objects.
func testControlEventsApart(t *testing.T, _ Harness, d Destination) {
	s := separator(t, d)
	s.AddPlace(t)
	sink := connected(t, d)
	all, gap, end := Messages(10, 6), Gap(), synced(t)
	for _, batch := range [][]*event.Message{all[:30], {gap}, all[30:], {end}} {
		sendAll(t, sink, batch)
	}
	expect(t, d.Records(t), all, false)
	records := s.ControlRecords(t)
	if len(records) != 2 || string(records[1].Data) != string(end.Data) {
		t.Fatalf("control events: %v", records)
	}
	for i, m := range []*event.Message{gap, end} {
		if diff := cmp.Diff(maps.Collect(m.Headers), records[i].Attributes); diff != "" {
			t.Errorf("attributes (-sent +held):\n%s", diff)
		}
	}
	var info event.GapInfo
	if err := json.Unmarshal(records[0].Data, &info); err != nil || info.Position == nil {
		t.Fatalf("the gap event has no position: %s, %v", records[0].Data, err)
	}
	if n := s.Before(t, *info.Position); n != 30 {
		t.Errorf("%d events are before the position %+v, want 30", n, *info.Position)
	}
	want := *gap.GapInfo
	want.Position = info.Position
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("gap (-sent +held):\n%s", diff)
	}
}

// testMissingControlPlace tests that a missing place for control events delays no object, and that the control events
// arrive when it exists.
func testMissingControlPlace(t *testing.T, _ Harness, d Destination) {
	s := separator(t, d)
	r := drain(t, d)
	all := Messages(10, 6)
	r.push(t, all[:30])
	r.push(t, []*event.Message{Gap()})
	r.push(t, all[30:])
	await(t, "delivery of the objects", func() bool { return r.queue.Stats().Items == 0 })
	expect(t, d.Records(t), all, false)
	parts := r.Unavailable()
	if len(parts) != 1 || parts[0].Events != 1 || parts[0].Cause == nil {
		t.Fatalf("parked: %+v", parts)
	}
	t.Logf("parked: %s: %v", parts[0].Destination, parts[0].Cause)
	s.AddPlace(t)
	await(t, "delivery of the control event", r.Parked.Empty)
	r.finish(t)
	if want := r.Sink.Part(Gap()); !sinks.Overlap(parts[0].Destination, want) {
		t.Errorf("parked for %s, want %s", parts[0].Destination, want)
	}
	expect(t, d.Records(t), all, false)
	if records := s.ControlRecords(t); len(records) != 1 || records[0].Attributes["id"] != Gap().ID {
		t.Errorf("control events: %v", records)
	}
}
