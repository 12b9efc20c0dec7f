package informer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/deltabridge/deltabridge/test/cluster"
)

// shared is the control plane of all tests. They keep to namespaces and API groups of their own.
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
	dir, err := os.MkdirTemp("", "deltabridge-informer-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	shared.dir = filepath.Join(dir, "cluster")
	code := m.Run()
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
	fmt.Fprintln(os.Stderr, "informer:", err)
	return 1
}

// sharedCluster starts the control plane at its first use.
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
