// Command prebuild compiles the control plane that tests and local runs start,
// the controller manager included, and shows the progress. It is for Makefiles:
// the first build takes longer than the timeout of a test may be.
//
// With -run it then starts a cluster, for work by hand.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func main() {
	dir := flag.String("run", "", "start a cluster in this `directory`, until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	_, err := cluster.Build(ctx, os.Stderr, cluster.Options{ControllerManager: true})
	if err == nil && *dir != "" {
		err = run(ctx, *dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // nothing is left to do
	}
}

func run(ctx context.Context, dir string) error {
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, ControllerManager: true, CompactionInterval: 5 * time.Minute})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "API server  %s\netcd        %s\nkubeconfig  %s\nlogs        %s\n"+
		"The control plane is ready. Ctrl-C ends it; its data stay for the next run.\n",
		c.APIServerURL(), c.EtcdURL(), c.Kubeconfig(), dir)
	<-ctx.Done()
	return c.Stop()
}
