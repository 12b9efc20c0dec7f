package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that is canceled by the first SIGINT or SIGTERM. A second one ends the process. On a
// terminal, the context is also canceled by SIGHUP, which means that the terminal was closed.
func untilSignal(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	if isTerminal(os.Stdin) && !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP) // until the end, because the kernel and the shell both send it
	}
	context.AfterFunc(ctx, stop) // restores the default action of the signals
	return ctx
}

// notifyHangups returns a channel that receives each SIGHUP until stop is called. On a terminal, it receives nothing:
// see untilSignal.
func notifyHangups() (hangups <-chan os.Signal, stop func()) {
	received := make(chan os.Signal, 1)
	if isTerminal(os.Stdin) || signal.Ignored(syscall.SIGHUP) {
		return received, func() {}
	}
	signal.Notify(received, syscall.SIGHUP)
	return received, func() { signal.Stop(received) }
}
