//go:build !linux

package main

import "syscall"

// childAttributes changes nothing: only Linux can tie a child to the life of its
// parent, and without that Ctrl-C had better reach the child as well.
func childAttributes() *syscall.SysProcAttr { return nil }
