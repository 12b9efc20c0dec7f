//go:build !linux

package e2e

import "syscall"

// childAttr is nothing special here.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
