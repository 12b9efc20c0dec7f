package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// orphanDir makes this test binary the process that TestProcessesDieWithTheParent
// kills: it starts etcd in the folder named by the variable and then waits.
const orphanDir = "DELTABRIDGE_TEST_ORPHAN_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanDir); dir != "" {
		beKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func beKilled(dir string) {
	ctx := context.Background() // not a test: there is no t.Context
	c, err := newCluster(ctx, Options{Dir: dir})
	if err == nil {
		err = c.StartEtcd(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("etcd runs")
	select {}
}
