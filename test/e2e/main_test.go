package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// bridgeBinary is built once for all tests.
var bridgeBinary string

// shared is the control plane of the tests that do not disturb it.
var shared struct {
	once sync.Once
	dir  string
	*cluster.Cluster
	err error
}

func TestMain(m *testing.M) {
	klog.LogToStderr(false) // client-go's word on requests that tests expect to fail
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "deltabridge-e2e-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	bridgeBinary = filepath.Join(dir, "bridge")
	build := exec.Command("go", append(append([]string{"build"}, raceFlag...), "-o", bridgeBinary, "github.com/deltabridge/deltabridge/cmd/bridge")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fail(fmt.Errorf("build the bridge: %w", err))
	}
	shared.dir = filepath.Join(dir, "cluster")
	code := kafka.Main(m).Run()
	if shared.Cluster != nil {
		if err := shared.Stop(); err != nil {
			return fail(err)
		}
	}
	if code == 0 {
		klog.StopFlushDaemon() // started by client-go's first line of log
		if err := goleak.Find(); err != nil {
			return fail(err)
		}
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	return 1
}

// sharedCluster starts the common control plane at its first use.
func sharedCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	shared.once.Do(func() {
		// Not the test's context: the cluster outlives the test that happens to be the first.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) //nolint:usetesting // see above
		defer cancel()
		shared.Cluster, shared.err = cluster.Start(ctx, cluster.Options{Dir: shared.dir})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Cluster
}
