package informer

import (
	"fmt"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/client-go/tools/cache"
)

// BenchmarkUpdate is a change of a known object, from the Reflector to a handler that asks for the old state.
func BenchmarkUpdate(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept elsewhere %t", kept), func(b *testing.B) {
			config := Config{Source: Source{Resource: configMaps}}
			if kept {
				config.Record = noRecord{}
			}
			i := New(config)
			i.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, _ any) {
				if _, err := old.(*object.Object).Bytes(); err != nil {
					b.Fatal(err)
				}
			}})
			s := (*store)(i)
			states := [...]*object.Object{state(b, "a", "x", "u1", 1), state(b, "a", "x", "u1", 2)}
			check := func(err error) {
				if err != nil {
					b.Fatal(err)
				}
			}
			check(s.Replace([]any{states[0]}, "1"))
			b.ReportAllocs()
			for n := 1; b.Loop(); n++ {
				check(s.Update(states[n%2]))
				s.UpdateResourceVersion(states[n%2].ResourceVersion)
			}
		})
	}
}
