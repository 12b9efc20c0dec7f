package cluster

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// ForTest starts a cluster for one test, in a folder that goes with the test, and
// stops it in the test's cleanup. Each change edits the options first. When the
// test failed, the ends of the processes' logs are part of its output. A process
// that ended by itself fails the test.
//
// The first build takes minutes, more than a test's timeout may allow:
// "go run ./test/cluster/prebuild" does it before.
func ForTest(t testing.TB, change ...func(*Options)) *Cluster {
	t.Helper()
	opts := Options{Dir: t.TempDir()}
	for _, f := range change {
		f(&opts)
	}
	c, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			c.dumpLogs(t)
		}
	})
	return c
}

// dumpLogs shows the ends of the logs that exist.
func (c *Cluster) dumpLogs(t testing.TB) {
	for _, p := range []*program{&c.etcd, &c.api, &c.ctlmgr} {
		if _, err := os.Stat(p.log); !errors.Is(err, fs.ErrNotExist) {
			t.Logf("the end of %s:\n%s", p.log, p.tail())
		}
	}
}
