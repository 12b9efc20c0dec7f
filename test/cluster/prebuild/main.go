// Command prebuild compiles the control plane that tests and local runs start,
// the controller manager included, and shows the progress. It is for Makefiles:
// the first build takes longer than the timeout of a test may be.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if _, err := cluster.Build(ctx, os.Stderr, cluster.Options{ControllerManager: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
