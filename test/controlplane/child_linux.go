package main

import "syscall"

// childAttributes ties the child to the life of its parent, and keeps it out of
// the terminal's process group: Ctrl-C reaches only the parent, which stops its
// children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
