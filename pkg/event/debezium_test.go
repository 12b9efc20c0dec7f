package event

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// missingBody is an object whose bytes cannot be read.
type missingBody struct{}

func (missingBody) Fetch(*object.Object) ([]byte, error) {
	return nil, errors.New("the checkpoint is damaged")
}

// Each kind of event, and what is left of it if it is too large. Readers that maintain a table need the state before
// each u and d.
func TestDebezium(t *testing.T) {
	old, now := mustObject(t, deploymentBefore), mustObject(t, deploymentAfter)
	before, after := string(old.Raw), string(now.Raw)
	small := func(raw string) string {
		data, err := metadataOf([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, c := range map[string]struct {
		event                        Event
		before, after, op, reducedOp string
	}{
		"addition":          {Event{Type: Added, Object: now}, "null", after, "c", "c"},
		"initial list":      {Event{Type: Added, Object: now, InitialList: true}, "null", after, "r", "r"},
		"resync":            {Event{Type: Restated, Object: now}, "null", after, "r", "r"},
		"update":            {Event{Type: Updated, Object: now, Old: old}, before, after, "u", "r"},
		"update, old state": {Event{Type: Updated, Object: now, Old: old.Released(missingBody{})}, "null", after, "r", "r"},
		"deletion":          {Event{Type: Deleted, Object: now}, after, "null", "d", "d"},
		"leave":             {Event{Type: Deleted, Object: now, LeftAt: "99"}, after, "null", "d", "d"},
	} {
		c.event.Resource, c.event.Time = deployments, time.UnixMilli(1234).Add(567*time.Microsecond)
		m := encode(t, &Encoder{Cluster: "prod", Payload: PayloadDebezium}, c.event)
		expect := func(data []byte, before, after, op string) {
			t.Helper()
			var got struct {
				Before, After json.RawMessage
				Op            string
				Time          int64 `json:"ts_ms"`
				Source        map[string]any
			}
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatalf("%s: %v: %s", name, err, data)
			}
			if string(got.Before) != before || string(got.After) != after || got.Op != op || got.Time != 1234 {
				t.Errorf("%s: %s", name, data)
			}
			want := map[string]any{
				"connector": "deltabridge", "cluster": "prod", "group": "apps", "version": "v1", "resource": "deployments",
				"namespace": now.Namespace, "name": now.Name, "uid": string(now.UID), "ts_ms": 1234.0,
				"resourceVersion": m.Identity.ResourceVersion, "snapshot": "false",
			}
			if c.event.InitialList {
				want["snapshot"] = "true"
			}
			if diff := cmp.Diff(want, got.Source); diff != "" {
				t.Errorf("%s: source (-want +got):\n%s", name, diff)
			}
		}
		expect(m.Data, c.before, c.after, c.op)
		reduced, err := Reduce(m, Marks{Omitted: ReasonOversize})
		if err != nil {
			t.Fatal(err)
		}
		if c.after == "null" {
			expect(reduced.Data, small(c.before), "null", c.reducedOp)
		} else {
			expect(reduced.Data, "null", small(c.after), c.reducedOp)
		}
	}
}
