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

// process looks at what the bridge needs of the machine.
func (e *examination) process() {
	e.memory()
	address := e.Config.HTTP.Listen
	listener, err := net.Listen("tcp", address)
	if err == nil {
		listener.Close()
		e.ok("listen", "http "+address, "is free")
		return
	}
	if e.running && errors.Is(err, syscall.EADDRINUSE) {
		e.ok("listen", "http "+address, "is in use, and a bridge runs with this state")
		return
	}
	e.fail("listen", "http "+address, plain(err), "set http.listen to another address, or end the program that has it")
}

// memory compares the limit with what the buffers may take. The index comes on top: about the size of all watched objects
// as JSON.
func (e *examination) memory() {
	var buffers int64
	for n := range e.Config.Sinks {
		buffers += int64(e.Config.Sinks[n].Buffer.Bytes)
	}
	limit, of := memoryLimit()
	detail := fmt.Sprintf("the buffers may take %v", size(buffers))
	if limit == 0 {
		e.ok("memory", "", detail+"; there is no limit")
		return
	}
	detail += fmt.Sprintf(" of %v (%s)", size(limit), of)
	if buffers > limit/2 {
		e.warn("memory", "", detail, "raise the limit, or lower buffer.bytes: the watched objects need memory too")
		return
	}
	e.ok("memory", "", detail)
}

// memoryLimit is the smallest limit that is set, and by what; 0 if there is none.
func memoryLimit() (limit int64, of string) {
	if soft := debug.SetMemoryLimit(-1); soft != math.MaxInt64 {
		limit, of = soft, "GOMEMLIMIT"
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// "max", or a number near the largest, is no limit.
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && n < 1<<50 && (limit == 0 || n < limit) {
			limit, of = n, "the container's limit"
		}
	}
	return limit, of
}
