package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
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

// logHangups logs each SIGHUP until stop is called. SIGHUP asks a daemon to read its configuration again, which the
// bridge cannot do. To stop instead would interrupt the stream, and would replace a configuration that works with one
// that may be invalid. On a terminal, logHangups does nothing: see untilSignal.
func logHangups(log *slog.Logger) (stop func()) {
	if isTerminal(os.Stdin) || signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var group sync.WaitGroup
	group.Go(func() {
		for range hangups {
			log.Warn("SIGHUP ignored: the configuration is read only at the start; restart the bridge to apply changes")
		}
	})
	return func() { signal.Stop(hangups); close(hangups); group.Wait() }
}
