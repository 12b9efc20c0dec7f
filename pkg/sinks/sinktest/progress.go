package sinktest

import (
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Sequencer is implemented by a Destination that is not one sequence.
type Sequencer interface {
	// Sequences returns the values that Record.Partition of a Message can have.
	Sequences(t testing.TB) []string
}

// progress returns a progress event for the same resource as Message.
func progress(t *testing.T, resourceVersion string) *event.Message {
	t.Helper()
	m := Message("o0", 1, 0)
	return controlEvent(t, event.Event{Type: event.Progress, Time: time.Now(), ProgressInfo: &event.ProgressInfo{
		Resource: event.GroupResource(m.Resource), ResourceVersion: resourceVersion, AsOf: time.Now().UTC(),
	}})
}

// sendProgress sends a progress event until the destination has accepted it everywhere. The first attempts may not
// reach parts that were not used before.
func sendProgress(t *testing.T, sink sinks.Sink, m *event.Message) {
	t.Helper()
	await(t, "progress everywhere", func() bool { return errors.Join(send(t, sink, []*event.Message{m})...) == nil })
}

// testProgressEverywhere tests that a progress event is in every sequence, behind all events that were sent before it
// and before those that are sent after it.
func testProgressEverywhere(t *testing.T, _ Harness, d Destination) {
	sink := connected(t, d)
	all := Messages(2, 30) // of few objects, so that some sequences have no events
	const rounds = 3
	step := map[string]int{} // by id
	for round := range rounds {
		part := all[round*len(all)/rounds : (round+1)*len(all)/rounds]
		sendAll(t, sink, part)
		for _, m := range part {
			step[m.ID] = 2 * round
		}
		mark := progress(t, strconv.Itoa(1000+10*(round+1)))
		sendProgress(t, sink, mark)
		step[mark.ID] = 2*round + 1
	}
	last := map[string]int{} // the last step, by sequence
	marks := map[string]map[string]bool{}
	var events []Record
	for _, r := range d.Records(t) {
		at := step[r.Attributes["id"]]
		if at < last[r.Partition] {
			t.Errorf("sequence %q: %s is behind something later", r.Partition, r.Attributes["id"])
		}
		last[r.Partition] = at
		if r.Attributes["type"] != event.Progress.CloudEventsType() {
			events = append(events, r)
			continue
		}
		if marks[r.Partition] == nil {
			marks[r.Partition] = map[string]bool{}
		}
		marks[r.Partition][r.Attributes["id"]] = true
	}
	expect(t, events, all, false)
	sequences := []string{""}
	if s, ok := d.(Sequencer); ok {
		sequences = s.Sequences(t)
	}
	for _, s := range sequences {
		if len(marks[s]) != rounds {
			t.Errorf("sequence %q has %d progress events, want %d", s, len(marks[s]), rounds)
		}
	}
}

// testProgressApart tests that a progress event in another place contains a position behind everything that was sent.
func testProgressApart(t *testing.T, _ Harness, d Destination) {
	s := separator(t, d)
	s.AddPlace(t)
	sink := connected(t, d)
	all := Messages(10, 6)
	sendAll(t, sink, all[:30])
	mark := progress(t, "1003")
	sendProgress(t, sink, mark)
	sendAll(t, sink, all[30:])
	expect(t, d.Records(t), all, false)
	records := s.ControlRecords(t)
	if len(records) == 0 {
		t.Fatal("there is no progress event")
	}
	if diff := cmp.Diff(maps.Collect(mark.Headers), records[0].Attributes); diff != "" {
		t.Errorf("attributes (-sent +held):\n%s", diff)
	}
	var info event.ProgressInfo
	if err := json.Unmarshal(records[0].Data, &info); err != nil || info.Position == nil {
		t.Fatalf("the progress event has no position: %s, %v", records[0].Data, err)
	}
	if n := s.Before(t, *info.Position); n != 30 {
		t.Errorf("%d events are before the position %+v, want 30", n, *info.Position)
	}
	want := *mark.ProgressInfo
	want.Position = info.Position
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("progress (-want +held):\n%s", diff)
	}
}
