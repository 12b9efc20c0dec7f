package cluster

import "syscall"

// processAttributes ties a process to the life of its parent, and keeps it out
// of the terminal's process group: Ctrl-C reaches only the parent, which stops
// the processes in order.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
