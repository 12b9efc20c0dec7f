//go:build !linux

package process

import "syscall"

// Attr sets nothing: if this process is killed, it leaves its children behind.
func Attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
