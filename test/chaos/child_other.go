//go:build !linux

package chaos

import "syscall"

// childAttr is nothing special here.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
