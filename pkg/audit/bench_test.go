package audit

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// batch returns a request of as many events as an API server sends at once, of about 1.2 KiB each, and the events.
func batch(b *testing.B) (body []byte, events [][]byte) {
	b.Helper()
	one, err := parseList(sent(b))
	if err != nil {
		b.Fatal(err)
	}
	var items []string
	for n := range 400 {
		items = append(items, strings.Replace(string(one[1]), "1f6b5b0e", fmt.Sprintf("%08d", n), 1))
	}
	body = listOf(items...)
	if events, err = parseList(body); err != nil {
		b.Fatal(err)
	}
	return body, events
}

func perEvent(b *testing.B, events int) {
	n := float64(b.N) * float64(events)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/event")
	b.ReportMetric(n/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkParseList(b *testing.B) {
	body, events := batch(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseList(body); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, len(events))
}

// acknowledge removes what was appended, so that the disk does not fill up.
func acknowledge(b *testing.B, j *Journal) {
	if s := j.Status(); s.Bytes > 64<<20 {
		if err := j.Ack(s.Last); err != nil {
			b.Error(err)
		}
	}
}

// One request after the other, and many at the same time, with the events of each.
func BenchmarkAppend(b *testing.B) {
	_, events := batch(b)
	for _, size := range []int{1, 400} {
		for _, parallel := range []int{1, 32} {
			b.Run(fmt.Sprintf("%d events, %d requests", size, parallel), func(b *testing.B) {
				j := openJournal(b, newDir(b))
				b.ReportAllocs()
				inParallel(b, parallel, func() error {
					acknowledge(b, j)
					return j.Append(b.Context(), events[:size])
				})
				perEvent(b, size)
			})
		}
	}
}

func BenchmarkHandler(b *testing.B) {
	body, events := batch(b)
	for _, parallel := range []int{1, 8} {
		b.Run(fmt.Sprintf("%d requests", parallel), func(b *testing.B) {
			j := openJournal(b, newDir(b))
			h, _ := newHandler(b, j)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			inParallel(b, parallel, func() error {
				acknowledge(b, j)
				if w := serve(h, post(b.Context(), bytes.NewReader(body))); w.Code != http.StatusOK {
					return fmt.Errorf("%d %s", w.Code, w.Body)
				}
				return nil
			})
			perEvent(b, len(events))
		})
	}
}

// inParallel calls call b.N times, from so many goroutines.
func inParallel(b *testing.B, goroutines int, call func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error)
	b.ResetTimer()
	for range goroutines {
		go func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range goroutines {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
}
