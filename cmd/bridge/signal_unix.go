//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// onResyncSignal has SIGUSR1 sent to signals, until the function that it returns is called.
func onResyncSignal(signals chan<- os.Signal) (stop func()) {
	signal.Notify(signals, syscall.SIGUSR1)
	return func() { signal.Stop(signals) }
}
