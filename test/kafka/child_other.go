//go:build !linux

package kafka

import "syscall"

// dieWithParent has no equal outside Linux: a test process that is killed leaves its broker behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
