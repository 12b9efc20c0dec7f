package page

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// BenchmarkSecond measures what a second with 50 delivered events costs, with 16 sinks and 300 resources. All viewers
// have a tail. What is written to connections is not measured.
func BenchmarkSecond(b *testing.B) {
	for _, viewers := range []int{1, 10} {
		b.Run(fmt.Sprint(viewers, " viewers"), func(b *testing.B) { benchmarkSecond(b, viewers) })
	}
}

func benchmarkSecond(b *testing.B, viewers int) {
	r, status := newRenderer(), large()
	h, now, stop := newHub(nil, r.tail, slog.Default()), time.Now(), make(chan struct{})
	for range viewers {
		h.viewers[&viewer{audience: audience{tail: true}, frames: make(chan []byte, 1)}] = struct{}{}
		h.tails.add(selection{})
	}
	m := message(event.Updated, "shop", "web")
	m.Data = []byte(`{"spec":{"text":["` + strings.Repeat(`value","`, 100) + `"]}}`)
	b.ReportAllocs()
	sent := 0
	var last frame
	for b.Loop() {
		now = now.Add(interval)
		for n := range status.Sources {
			status.Sources[n].Changes += int64(n % 2)
		}
		for range 50 {
			h.tails.observe("live", m)
		}
		next, err := r.sections(newView(status, now), last)
		if err != nil {
			b.Fatal(err)
		}
		h.send(stop, last, next)
		for v := range h.viewers {
			sent += len(<-v.frames)
		}
		last = next
	}
	b.ReportMetric(float64(sent)/float64(b.N*viewers), "bytes/viewer")
}
