package main

import "syscall"

// childAttr puts the child into a process group of its own, and ends it if this process dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
