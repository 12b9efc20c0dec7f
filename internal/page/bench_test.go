package page

import (
	"testing"
	"time"
)

// BenchmarkRender measures what is done each second for all viewers together, with 16 sinks and 300 resources.
func BenchmarkRender(b *testing.B) {
	r, status := newRenderer(), large()
	bytes, now := 0, time.Now()
	var last frame
	for b.Loop() {
		now = now.Add(interval)
		next, err := r.sections(newView(status, now), last)
		if err != nil {
			b.Fatal(err)
		}
		bytes, last = len(encode(last, next, true, false)), next
	}
	b.ReportMetric(float64(bytes), "bytes")
}
