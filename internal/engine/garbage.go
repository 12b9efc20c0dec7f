package engine

import (
	"context"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

const (
	// usualGarbage and busyGarbage are how much garbage the heap may hold beside what is live, in percent, before it is
	// collected: the runtime's own default, and twice as much where collecting it is dear and holding it is cheap.
	usualGarbage, busyGarbage = 100, 200
	// busyBytes is how much has to be allocated between two looks, and smallHeap how little has to be live, for that.
	busyBytes, smallHeap = 3 << 20, 64 << 20
	garbageLook          = 100 * time.Millisecond
)

// tendGarbage lets the heap hold more garbage in a burst, until ctx ends. It leaves it at what people have set in the
// environment; a limit set there (GOMEMLIMIT) holds all the same.
func tendGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	samples := []runtimemetrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(garbageLook)
	defer ticker.Stop()
	runtimemetrics.Read(samples)
	before, set := samples[0].Value.Uint64(), usualGarbage
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		runtimemetrics.Read(samples)
		allocated := samples[0].Value.Uint64()
		if percent := garbage(allocated-before, samples[1].Value.Uint64()); percent != set {
			debug.SetGCPercent(percent)
			set = percent
		}
		before = allocated
	}
}

// garbage is the percentage for so many bytes allocated since the last look, and so many that are live.
func garbage(allocated, live uint64) int {
	if allocated >= busyBytes && live < smallHeap {
		return busyGarbage
	}
	return usualGarbage
}
