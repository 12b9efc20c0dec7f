package doctor

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// checkProcess checks the memory limit and the HTTP address.
func (e *examination) checkProcess() {
	e.checkMemory()
	address := e.Config.HTTP.Listen
	listener, err := net.Listen("tcp", address)
	if err == nil {
		listener.Close()
		e.ok("listen", "http "+address, "available")
		return
	}
	if e.running && errors.Is(err, syscall.EADDRINUSE) {
		e.ok("listen", "http "+address, "in use, and a bridge is running with this state")
		return
	}
	e.fail("listen", "http "+address, err,
		"set http.listen to another address, or stop the program that uses this one")
}

// checkMemory compares the memory limit with the total size of the buffers. It warns if the buffers can take more than
// half of the limit, because the bridge also requires memory for its index.
func (e *examination) checkMemory() {
	var buffers int64
	for n := range e.Config.Sinks {
		buffers += e.Config.Sinks[n].Buffer.Bytes
	}
	limit, of := memoryLimit()
	detail := fmt.Sprintf("buffers can use %v", size(buffers))
	if limit == 0 {
		e.ok("memory", "", detail+"; there is no memory limit")
		return
	}
	detail += fmt.Sprintf(" of %v (%s)", size(limit), of)
	if buffers > limit/2 {
		e.warn("memory", "", detail, "raise the limit, or lower buffer.bytes: the watched objects require memory too")
		return
	}
	e.ok("memory", "", detail)
}

// memoryLimit returns the lowest memory limit and its origin. If there is no memory limit, it returns 0.
func memoryLimit() (limit int64, of string) {
	if soft := debug.SetMemoryLimit(-1); soft != math.MaxInt64 {
		limit, of = soft, "GOMEMLIMIT"
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// Without a limit, the file contains "max" (cgroup v2) or a huge number (cgroup v1).
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && n < 1<<50 && (limit == 0 || n < limit) {
			limit, of = n, "the container's limit"
		}
	}
	return limit, of
}
