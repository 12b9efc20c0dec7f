//go:build unix

package fifo

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process used so far, in ns.
func cpuTime(b *testing.B) int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return r.Utime.Nano() + r.Stime.Nano()
}

// residentPeak is the process's peak resident size in MB, where the system tells.
func residentPeak() float64 {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb := 0.0
			for _, c := range strings.Fields(rest)[0] {
				kb = kb*10 + float64(c-'0')
			}
			return kb / 1000
		}
	}
	return 0
}

// BenchmarkSpill pushes items of 2600 bytes with the consumer away, and then takes them all: the time and CPU time of
// one item on each of the two ways.
func BenchmarkSpill(b *testing.B) {
	const size = 2600
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	s, err := New(Options[[]byte]{
		Path: filepath.Join(b.TempDir(), "q"), MaxItems: benchItems, MaxBytes: benchBytes,
		Size:      func(v []byte) int64 { return int64(len(v)) },
		Encode:    func(dst, v []byte) ([]byte, error) { return append(dst, v...), nil },
		Decode:    func(data []byte, _ bool) ([]byte, error) { return data, nil },
		Mark:      func([]byte) (string, string) { return "pods", "12345" },
		OnSettled: func([][]byte) {}, Receipt: func([]byte) []byte { return nil },
		OnCorrupt: func(Loss) [][]byte { return nil }, Since: func([]byte) time.Time { return time.Now() },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

	cpu := cpuTime(b)
	b.ResetTimer()
	for i := range b.N {
		at := i * 131 % (len(random) - size)
		if err := s.Push(ctx, append([]byte(nil), random[at:at+size]...)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "write-cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "written/s")
	fileBytes := s.SpillStats().FileBytes
	b.ReportMetric(float64(fileBytes)/1e6, "file-MB")

	cpu = cpuTime(b)
	written := b.Elapsed()
	var buf [][]byte
	for left := b.N; left > 0; left -= len(buf) {
		if buf, err = s.Take(ctx, buf, 2048, 16<<20); err != nil {
			b.Fatal(err)
		}
		s.Ack(len(buf))
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "read-cpu-ns/op")
	b.ReportMetric(float64(b.N)/(b.Elapsed()-written).Seconds(), "read/s")
	b.ReportMetric(residentPeak(), "peak-MB")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
