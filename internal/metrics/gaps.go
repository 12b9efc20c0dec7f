package metrics

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// gapInterval is the minimum time between two writes for gaps with the same labels.
const gapInterval = 10 * time.Second

// gaps stores when gap events were last delivered. Otherwise, a process that ends before the next scrape would hide its
// gaps.
type gaps struct {
	mu   sync.Mutex
	path string               // empty if the times are not stored
	at   map[string]time.Time // by sink, resource and reason, separated by spaces
}

// KeepGaps makes last_gap_timestamp_seconds survive a restart. It reads the times that a previous process stored in the
// file at path, and stores later times there. Call it before Sink.Resource. After an error, the times of the previous
// process are unknown.
func (m *Metrics) KeepGaps(path string) error {
	g := &m.gaps
	g.mu.Lock()
	defer g.mu.Unlock()
	g.path = path
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &g.at)
	}
	if g.at == nil || err != nil {
		g.at = map[string]time.Time{}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Gap is when a gap event was last delivered, by its resource and reason.
type Gap struct {
	Resource, Reason string
	At               time.Time
}

// Gaps returns the gaps of a sink, the latest first, also those that a previous process has delivered.
func (m *Metrics) Gaps(sink string) (all []Gap) {
	m.gaps.mu.Lock()
	defer m.gaps.mu.Unlock()
	for key, at := range m.gaps.at {
		if rest, ok := strings.CutPrefix(key, sink+" "); ok {
			resource, reason, _ := strings.Cut(rest, " ")
			all = append(all, Gap{resource, reason, at})
		}
	}
	slices.SortFunc(all, func(a, b Gap) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Resource+" "+a.Reason, b.Resource+" "+b.Reason))
	})
	return all
}

// of returns the times of a sink and resource, by reason.
func (g *gaps) of(sink, resource string) map[string]time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	times := map[string]time.Time{}
	for key, at := range g.at {
		if reason, ok := strings.CutPrefix(key, sink+" "+resource+" "); ok {
			times[reason] = at
		}
	}
	return times
}

// note stores the time of a gap. The file survives the end of the process, but not always a crash of the machine.
func (g *gaps) note(sink, resource, reason string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := strings.Join([]string{sink, resource, reason}, " ")
	if g.path == "" || now.Sub(g.at[key]) < gapInterval {
		return
	}
	g.at[key] = now
	data, err := json.Marshal(g.at)
	if err == nil && os.WriteFile(g.path+".new", data, 0o600) == nil {
		_ = os.Rename(g.path+".new", g.path) // if the disk is full, the metric is lost at a restart, but no event
	}
}
