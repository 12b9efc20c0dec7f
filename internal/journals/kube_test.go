package journals

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// The register in a real API server keeps each record by itself, and removes one only if it is still the same.
func TestRegister(t *testing.T) {
	r, err := New(cluster.Shared(t).RESTConfig(), "default", "journals-test", time.Minute)
	observe.Must(t, err)
	ctx := t.Context()
	check := func(want map[string]string) {
		t.Helper()
		all, err := r.All(ctx)
		observe.Must(t, err)
		if diff := cmp.Diff(want, all); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	check(map[string]string{})
	observe.Must(t, r.Remove(ctx, "A", "1")) // there is no Lease
	observe.Must(t, r.Put(ctx, "A", "1"))
	observe.Must(t, r.Put(ctx, "B", "1"))
	observe.Must(t, r.Put(ctx, "A", "2"))
	check(map[string]string{"A": "2", "B": "1"})
	observe.Must(t, r.Remove(ctx, "A", "1")) // was renewed
	check(map[string]string{"A": "2", "B": "1"})
	observe.Must(t, r.Remove(ctx, "A", "2"))
	observe.Must(t, r.Remove(ctx, "A", "2"))
	check(map[string]string{"B": "1"})
	all, err := r.All(ctx)
	observe.Must(t, err)
	for _, journal := range slices.Collect(maps.Keys(all)) {
		observe.Must(t, r.Remove(ctx, journal, all[journal]))
	}
}
