//go:build !linux

package registry

import "syscall"

// dieWithParent is nothing special here: tests end their registry.
func dieWithParent() *syscall.SysProcAttr { return nil }
