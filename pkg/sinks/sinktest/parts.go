package sinktest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/parked"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Divider is implemented by a Destination with one part (a topic or subject) per resource.
type Divider interface {
	// Divide configures the destination so that it has parts for the given resources only. It must be called before
	// NewSink.
	Divide(t *testing.T, resources []string)
	// Add adds the part of a resource.
	Add(t *testing.T, resource string)
}

// testMissingPart tests that a missing part does not delay the other parts. The events of the missing part are parked,
// and they are delivered in order when the part exists, even after a restart.
func testMissingPart(t *testing.T, _ Harness, d Destination) {
	divider, ok := d.(Divider)
	if !ok {
		t.Skip("the destination has no parts")
	}
	divider.Divide(t, []string{"things"})
	dir := t.TempDir()
	store := OpenParked(t, dir)
	use := func(d *sinks.Drain) { d.Parked = store }
	r := drain(t, d, use)
	var others, missing []*event.Message
	for v := range 50 {
		for o := range 5 {
			others = append(others, Message(fmt.Sprintf("o%d", o), v+1, 100))
			missing = append(missing, serviceOf(Message(fmt.Sprintf("s%d", o), v+1, 100)))
		}
		r.push(t, others[len(others)-5:])
		r.push(t, missing[len(missing)-5:])
	}
	await(t, "delivery of everything else", func() bool { return r.queue.Stats().Items == 0 })
	parts := r.Unavailable()
	if len(parts) != 1 || parts[0].Events != len(missing) || parts[0].Cause == nil {
		t.Fatalf("parked: %+v", parts)
	}
	t.Logf("parked: %s: %v", parts[0].Destination, parts[0].Cause)
	r.finish(t)
	expect(t, d.Records(t), others, false)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	store = OpenParked(t, dir)
	r = drain(t, d, use)
	late := []*event.Message{serviceOf(Message("s0", 51, 100)), Message("o0", 51, 100)}
	r.push(t, late)
	await(t, "the new events", func() bool { return r.queue.Stats().Items == 0 })
	if n := r.Unavailable()[0].Events; n != len(missing)+1 {
		t.Errorf("%d parked after the restart", n)
	}
	divider.Add(t, "services")
	await(t, "delivery of what was parked", store.Empty)
	r.finish(t)
	expect(t, d.Records(t), append(append(others, missing...), late...), false)
	if diff := cmp.Diff("ok", r.Status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// OpenParked opens a store of parked events in dir. The test closes it.
func OpenParked(t *testing.T, dir string) *parked.Store {
	t.Helper()
	s, err := parked.Open(parked.Options{Dir: dir, Sink: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func serviceOf(m *event.Message) *event.Message {
	m.Resource.Group, m.Resource.Resource = "", "services"
	m.ID = "services-" + m.ID
	return m
}
