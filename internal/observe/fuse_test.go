package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/delivery"
)

func TestFuse(t *testing.T) {
	for _, test := range []struct {
		name   string
		outage outage
		want   time.Duration
		text   string
	}{
		{
			"the disk first, then memory, then the history",
			outage{growth: 10, diskEvents: 6000, memory: 600, overflow: delivery.Block},
			10*time.Minute + time.Minute + history, "the queue is full in 11m",
		},
		{
			"other sinks fill the disk earlier",
			outage{growth: 10, diskEvents: 6000, memory: 600, diskFull: time.Minute, overflow: delivery.Block},
			2*time.Minute + history, "full in 2m",
		},
		{
			"memory has what the disk must take first",
			outage{growth: 10, diskEvents: 1000, memory: -400, overflow: delivery.Block},
			time.Minute + history, "full in 60s",
		},
		{"more in memory than the disk has room for", outage{growth: 10, diskEvents: 100, memory: -400, overflow: delivery.Block}, history, "in 0s"},
		{"nothing changes", outage{diskEvents: 1, overflow: delivery.Block}, longestFuse, "does not grow"},
		{"less waits than before", outage{growth: -3, diskEvents: 1, overflow: delivery.Block}, longestFuse, "does not grow"},
		{"hardly anything changes", outage{growth: 1e-9, diskEvents: 1e6, overflow: delivery.Block}, longestFuse, "does not grow"},
		{"sources wait", outage{growth: 10, diskEvents: 100, blocked: time.Minute, overflow: delivery.Block}, history - time.Minute, "sources have been waiting for 60s"},
		{"sources have waited for too long", outage{blocked: 2 * time.Minute, overflow: delivery.Block}, history - 2*time.Minute, "sources"},
		{"events are merged", outage{growth: 10, diskEvents: 600, overflow: delivery.Compact}, time.Minute, "merges"},
		{"events are dropped", outage{growth: 10, diskEvents: 600, overflow: delivery.DropOldest}, time.Minute, "drops"},
		{"the audit journal fills", outage{growth: 10, diskEvents: 600, overflow: journalFull}, time.Minute + auditRetries, "no audit event is accepted"},
		{"events are being dropped", outage{growth: 10, overflow: delivery.DropOldest}, 0, "drops"},
		{
			"the state log lacks the last events",
			outage{growth: 1, diskEvents: 1e6, overflow: delivery.Block, onlyHere: 15 * time.Second},
			time.Minute, "only this replica",
		},
		{
			"the state log has been away for long",
			outage{growth: 1, diskEvents: 1e6, overflow: delivery.Block, onlyHere: time.Hour},
			0, "only this replica",
		},
		{
			"the queue is worse than the state log",
			outage{blocked: 74 * time.Second, overflow: delivery.Block, onlyHere: time.Second},
			time.Second, "the queue is full",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := test.outage
			if o.diskFull == 0 {
				o.diskFull = longestFuse
			}
			fuse := o.fuse()
			if fuse.Seconds != test.want.Seconds() || !strings.Contains(fuse.Text, test.text) {
				t.Errorf("%v s, want %v s: %s", fuse.Seconds, test.want.Seconds(), fuse.Text)
			}
		})
	}
}

func TestRates(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var r rates
	if got := r.of("a", start, 100); got != 0 || !r.due(start) {
		t.Errorf("without a sample: %v", got)
	}
	for second := 0; second <= 120; second += 10 { // 1 per second for a minute, then 10 per second
		if r.due(at(second-1)) != (second == 0) {
			t.Errorf("due after %d seconds", second-1)
		}
		r.add(at(second), map[string]int64{"a": int64(min(second, 60) + 10*max(0, second-60))})
		if second == 80 {
			if got := r.of("a", at(80), 260); got != 4 { // 20 to 260 in 60 seconds
				t.Errorf("%v in the last minute", got)
			}
			if got := r.highest("a", at(82), 280); got != 10 {
				t.Errorf("%v in the last 12 seconds", got)
			}
		}
	}
	if len(r.samples) != 7 {
		t.Errorf("%d samples", len(r.samples))
	}
	if got := r.of("a", at(121), 670); got != 10 {
		t.Errorf("%v in the last minute", got)
	}
	if got := r.highest("a", at(120), 600); got != 9 { // 60 to 600 in 60 seconds, and nothing in the last ones
		t.Errorf("%v, which is the rate of the last minute", got)
	}
	if got := r.of("new", at(121), 122); got != 2 {
		t.Errorf("%v of a new counter", got)
	}
}
