package process

import "syscall"

// Attr makes the kernel kill a child if this process ends, however it ends.
func Attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
