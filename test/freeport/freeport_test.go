package freeport

import (
	"net"
	"slices"
	"sync"
	"testing"
)

// Ports that are reserved at the same time are different, and servers can listen on them.
func TestReserve(t *testing.T) {
	var mu sync.Mutex
	var all []int
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			found, err := Reserve(50)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
		})
	}
	group.Wait()
	slices.Sort(all)
	if different := slices.Compact(slices.Clone(all)); len(different) != 8*50 {
		t.Errorf("%d different ports of %d", len(different), len(all))
	}
	for _, port := range all {
		l, err := net.Listen("tcp", Address(port))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close() // nobody has connected
	}
}
