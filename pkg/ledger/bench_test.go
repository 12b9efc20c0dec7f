package ledger

import (
	"strconv"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// BenchmarkLedger is one change of 5,000 objects that one sink, or four, settle in batches of 512; what may be written
// is collected every 20,000 changes, which is about once a second under full load.
func BenchmarkLedger(b *testing.B) {
	for name, sinks := range map[string][]string{"sinks=1": {"a"}, "sinks=4": {"a", "b", "c", "d"}} {
		b.Run(name, func(b *testing.B) {
			objects := make([]*object.Object, 5000)
			for i := range objects {
				objects[i] = stateOf(b, "pod-"+strconv.Itoa(i), 1)
			}
			keys := make([]string, len(objects))
			versions := make([]string, 20_000)
			for i, o := range objects {
				keys[i] = o.Key()
			}
			for i := range versions {
				versions[i] = strconv.Itoa(1_000_000 + i)
			}
			l := New(Source{Name: "pods"}, State{ResourceVersion: "1"}, sinks, 0)
			var open []uint64
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				change(l, keys[n%len(keys)], objects[n%len(objects)], sinks, &open)
				l.Advance(versions[n%len(versions)])
				if n++; n%512 == 0 {
					for i, seq := range open {
						l.Settle(sinks[i%len(sinks)], seq)
					}
					open = open[:0]
				}
				if n%len(versions) == 0 {
					l.Collect()
					l.Confirm()
				}
			}
		})
	}
}

func change(l *Ledger, key string, o *object.Object, sinks []string, open *[]uint64) {
	l.SetRow(key, o)
	for _, sink := range sinks {
		*open = append(*open, l.Track(sink))
	}
}
