package actor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// The cost of an audit event and of its change, with 1.6 KB for an event, when those of ten seconds are kept.
func BenchmarkJoin(b *testing.B) {
	const perSecond, objects = 1000, 1000
	labels := `,"annotations":{"text":"` + strings.Repeat("x", 300) + `"}`
	var events []*audit.Event
	var changes []Change
	for n := range 20 * perSecond {
		uid, before := fmt.Sprintf("%036d", n%objects), n
		c := call{
			user:     fmt.Sprint("system:serviceaccount:kube-system:controller-", n%20),
			verb:     "patch",
			name:     uid,
			response: object(uid, before+objects, labels),
		}
		if c.request = `{"metadata":{` + labels[1:] + `}}`; n%2 == 0 {
			c.verb, c.request = "update", object(uid, before, labels)
		}
		events = append(events, c.event(b))
		change := change(Updated, uint64(before), uint64(before+objects))
		change.UID, change.Name = uid, uid
		changes = append(changes, change)
	}
	b.Logf("%d bytes", len(events[0].Raw))
	for _, part := range []string{"scan", "both"} {
		b.Run(part, func(b *testing.B) {
			j := New(Options{})
			b.ReportAllocs()
			answers, n := 0, 0
			for b.Loop() {
				now := at(0).Add(time.Duration(n) * time.Second / perSecond)
				e, c := *events[n%len(events)], changes[n%len(events)]
				e.Received, e.StageTime = now, now.Add(time.Millisecond)
				n++
				if part == "scan" {
					j.scanned.newRequest(&e)
					continue
				}
				c.Observed = now.Add(time.Millisecond)
				answers += len(j.Event(&e, now.Add(100*time.Millisecond))) + len(j.Change(c)) + len(j.Expire(now))
			}
			if part == "both" {
				b.ReportMetric(float64(j.bytes), "bytes-kept")
			}
		})
	}
}

// A hostile user writes one object and nothing else, which leaves as much as possible with one key.
func BenchmarkOneObject(b *testing.B) {
	noEffect := call{verb: "patch", from: 80, to: 90, response: object("u", 5)}.event(b)
	hidden := call{verb: "patch", from: 80, to: 90, level: "Metadata"}.event(b)
	j := New(Options{MaxBytes: 1 << 30})
	for range 10_000 {
		j.Event(noEffect, at(91))
		j.Event(hidden, at(91))
	}
	c := change(Updated, 4, 5)
	c.Since = at(0)
	for b.Loop() {
		j.find(&c, true)
	}
}
