package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf returns the user and system CPU time that a process has used so far.
func cpuOf(pid int) (time.Duration, error) {
	const schedulersClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedulersClock), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memoryOf returns the current and the peak resident memory of a process, in bytes.
func memoryOf(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // other lines have no number
		switch fields[0] {
		case "VmRSS:":
			now = kilobytes << 10
		case "VmHWM:":
			peak = kilobytes << 10
		}
	}
	return now, peak, nil
}

// connectionsTo counts the open TCP connections of a process to a port, over IPv4.
func connectionsTo(pid int, port string) (int, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, err
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return 0, err
	}
	const established = "01"
	sockets := map[string]bool{} // as in the links in /proc/PID/fd
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(
			line,
		); len(f) > 9 && f[3] == established &&
			strings.HasSuffix(f[2], fmt.Sprintf(":%04X", number)) {
			sockets["socket:["+f[9]+"]"] = true
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, e := range entries {
		if link, err := os.Readlink(dir + "/" + e.Name()); err == nil && sockets[link] { // ignore files that were just closed
			count++
		}
	}
	return count, nil
}

// limitFiles makes the files of a process stop growing, as on a full disk, or lets them grow again.
func limitFiles(pid int, isFull bool) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		return err
	}
	if limit.Cur = limit.Max; isFull {
		limit.Cur = 0
	}
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil)
}
