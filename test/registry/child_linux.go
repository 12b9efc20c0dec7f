package registry

import "syscall"

// dieWithParent makes the kernel kill a child whose parent has ended, however it ended.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
