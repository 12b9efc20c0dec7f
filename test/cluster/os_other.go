//go:build !linux

package cluster

import "syscall"

// processAttributes changes nothing: only Linux can tie a process to the life of
// its parent, and without that Ctrl-C had better reach the process as well.
func processAttributes() *syscall.SysProcAttr { return nil }
