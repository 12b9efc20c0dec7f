//go:build unix

package tracker

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// BenchmarkCommits changes objects of 2.6 KB, one at a time. One sink settles each change. A commit follows after a
// number of changes: those of one second under load, and as many as the ledgers may hold.
func BenchmarkCommits(b *testing.B) {
	for _, of := range []struct{ objects, changes int }{{500, 1_400}, {500, 5_600}, {5_000, 1_400}, {5_000, 5_600}} {
		b.Run(fmt.Sprintf("objects=%d/changes=%d", of.objects, of.changes), func(b *testing.B) {
			e := start(b, b.TempDir(), Sink{Name: "s"})
			begin(b, e, pods, "1")
			objects := make([]*object.Object, of.objects)
			words := strings.Repeat(`{"name":"a container","image":"registry.example.com/shop/web:1.14.2","ready":true},`, 30)
			for i := range objects {
				raw := fmt.Appendf(nil, `{"metadata":{"name":"pod-%d","resourceVersion":"%d"},"spec":[%s{}]}`, i, i+2, words)
				o, err := object.New(raw)
				if err != nil {
					b.Fatal(err)
				}
				objects[i] = o
			}
			r, before, n := e.Record(pods), cpu(b), 0
			for b.Loop() {
				o := *objects[n%len(objects)]
				o.ResourceVersion = fmt.Sprint(n + 2)
				r.Updated(&o)
				e.Settle("s", send(e, pods, "s"))
				r.Reached(o.ResourceVersion)
				if n++; n%of.changes == 0 {
					_ = e.Commit()
				}
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(n)/1000, "cpu-us/op")
		})
	}
}

// cpu returns the CPU time that the process has used.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
