package doctor

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deltabridge/deltabridge/internal/assemble"
)

// checkMemory compares the memory limit with the memory that the watched objects and full buffers require. It warns if
// that is more than half of the limit, because the garbage collector lets the heap grow to twice the live memory.
func (e *examination) checkMemory() {
	buffers := assemble.BufferBytes(e.cfg)
	limit, of := memoryLimit()
	required := e.size.memory(buffers)
	detail := fmt.Sprintf("%v and buffers of %s require a limit of %s", &e.size, size(buffers), size(2*required))
	if limit == math.MaxInt64 {
		e.ok("memory", "", detail+"; there is no memory limit")
		return
	}
	detail += fmt.Sprintf("; it is %s (%s)", size(limit), of)
	if required > limit/2 {
		e.warn("memory", "", detail, "raise the limit, watch fewer objects, or lower buffer.bytes")
		return
	}
	e.ok("memory", "", detail)
}

// memoryLimit returns the lowest memory limit and its origin. If there is no memory limit, it returns math.MaxInt64.
func memoryLimit() (limit int64, of string) {
	limit, of = debug.SetMemoryLimit(-1), "GOMEMLIMIT"
	data, _ := os.ReadFile("/sys/fs/cgroup/memory.max") // absent outside of a container; "max" without a limit
	if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n < limit {
		limit, of = n, "the container's limit"
	}
	return limit, of
}

// size formats a number of bytes with a binary unit. It rounds down to mebibytes.
func size(n int64) string { return resource.NewQuantity(n>>20<<20, resource.BinarySI).String() }
