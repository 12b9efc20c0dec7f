//go:build !linux

package main

import (
	"errors"
	"time"
)

var errOnlyLinux = errors.New("the benchmarks run only on Linux")

func cpuOf(int) (time.Duration, error) { return 0, errOnlyLinux }

func memoryOf(int) (now, peak int64, err error) { return 0, 0, errOnlyLinux }

func connectionsTo(int, string) (int, error) { return 0, errOnlyLinux }

func limitFiles(int, bool) error { return errOnlyLinux }
