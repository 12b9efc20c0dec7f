package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// startTimeout bounds the start of the shared cluster, which may have to wait for
// a build by another process.
const startTimeout = 5 * time.Minute

// shared is the cluster of a test binary: a start costs seconds, so its tests
// have one in common.
var shared struct {
	once sync.Once
	dir  string
	*Cluster
	err error
}

// Shared returns the cluster that all tests of the package share, and starts it
// at the first call. Tests keep to namespaces and API groups of their own, and
// must not stop it: [Main] does.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.once.Do(func() { shared.Cluster, shared.err = startShared() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Cluster
}

// startShared does not take the context of a test: the cluster outlives the test
// that happens to be the first.
func startShared() (*Cluster, error) {
	dir, err := os.MkdirTemp("", "deltabridge-cluster-")
	if err != nil {
		return nil, err
	}
	shared.dir = dir
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return Start(ctx, Options{Dir: filepath.Join(dir, "cluster")})
}

// Main wraps a *testing.M so that its Run ends the shared cluster after the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(cluster.Main(m)) }
//
// It also keeps client-go quiet about requests that tests expect to fail.
func Main(m interface{ Run() int }) *MainRunner { return &MainRunner{m} }

// MainRunner runs a package's tests. See [Main].
type MainRunner struct{ m interface{ Run() int } }

// Run runs the tests and returns their exit code. A shared cluster that does not
// stop in order is a failure.
func (r *MainRunner) Run() int {
	klog.LogToStderr(false)
	code := r.m.Run()
	if shared.Cluster != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "the shared cluster:", err)
			code = max(code, 1)
		}
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // what is left lies in the system's folder for such things
	}
	klog.StopFlushDaemon() // started by client-go's first line of log
	return code
}
