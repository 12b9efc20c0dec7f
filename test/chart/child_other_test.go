//go:build !linux

package chart

import "syscall"

// childAttr is nothing special here.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
