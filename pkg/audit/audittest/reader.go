// Package audittest reads sources of audit events in tests.
package audittest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

const (
	// patience is how long a test waits for an event.
	patience = 20 * time.Second
	// quiet is how long a test waits for an event that must not come.
	quiet = 300 * time.Millisecond
)

// Event returns an audit event.
func Event(id string) string { return fmt.Sprintf(`{"auditID":%q,"stage":"Panic"}`, id) }

// Reader reads sources that have the same events, such as the one before a restart and the one after it.
type Reader struct {
	T         *testing.T
	At        json.RawMessage // the position of the last read
	Unordered bool            // the order of the events is not certain
}

// Expect reads what there is, and compares the auditIDs and the losses. A loss is "N lost: MESSAGE".
func (r *Reader) Expect(s audit.Source, want ...string) {
	r.T.Helper()
	var got []string
	limit := patience
	if len(want) == 0 {
		limit = quiet
	}
	ctx, cancel := context.WithTimeout(r.T.Context(), limit)
	defer cancel()
	for len(got) < max(len(want), 1) {
		batch, err := s.Read(ctx, r.At)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err == nil {
			err = batch.Err
		}
		if err != nil {
			r.T.Fatal(err)
		}
		r.At, got = batch.Position, append(got, Items(r.T, batch)...)
	}
	if r.Unordered {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		r.T.Errorf("got  %q\nwant %q", got, want)
	}
}

// Items returns the auditIDs and the losses in a batch.
func Items(t testing.TB, batch *audit.Batch) (items []string) {
	t.Helper()
	for raw, lost := range batch.All() {
		if lost != nil {
			items = append(items, fmt.Sprintf("%d lost: %s", lost.Events, lost.Message))
			continue
		}
		var e struct{ AuditID string }
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		items = append(items, e.AuditID)
	}
	return items
}
