package kafka

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/deltabridge/deltabridge/test/maven"
)

// shared is the broker of a test binary: a start costs seconds, so its tests have one in common.
var shared struct {
	sync.Mutex
	broker *Broker
	err    error
	dir    string
}

// ForTest returns the broker that all tests of the package share, and starts it at the first call. It must not
// be stopped or paused; [Main] ends it. The test is skipped where no broker can run, unless CI is set.
func ForTest(t testing.TB) *Broker {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.broker == nil && shared.err == nil {
		shared.broker, shared.err = startShared(t.Context())
	}
	skipOrFail(t, shared.err)
	return shared.broker
}

func startShared(ctx context.Context) (*Broker, error) {
	dir, err := os.MkdirTemp("", "kafka-")
	if err != nil {
		return nil, err
	}
	shared.dir = dir
	// It has one life, so the controller need not notice soon that it has ended. It must not take it for dead when the
	// machine stands still.
	return Start(ctx, dir, "broker.session.timeout.ms=60000")
}

// NewForTest returns a broker for this test alone, which ends it. Properties are as for [Start].
func NewForTest(t testing.TB, properties ...string) *Broker {
	t.Helper()
	return NewForTestBehind(t, nil, properties...)
}

// NewForTestBehind is NewForTest with the proxies of [StartBehind].
func NewForTestBehind(t testing.TB, proxies []string, properties ...string) *Broker {
	t.Helper()
	b, err := StartBehind(t.Context(), t.TempDir(), proxies, properties...)
	skipOrFail(t, err)
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Errorf("ending the test's broker: %v", err)
		}
	})
	return b
}

// NewClusterForTest returns a cluster of three brokers for this test alone, which ends them. Proxies and properties are
// as for [StartCluster].
func NewClusterForTest(t testing.TB, proxies []string, properties ...string) []*Broker {
	t.Helper()
	brokers, err := StartCluster(t.Context(), t.TempDir(), 3, proxies, properties...)
	skipOrFail(t, err)
	for _, b := range brokers {
		t.Cleanup(func() {
			if err := b.Kill(); err != nil {
				t.Errorf("ending the test's broker: %v", err)
			}
		})
	}
	return brokers
}

func skipOrFail(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, maven.ErrNoTools) && os.Getenv("CI") == "":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// Main wraps a *testing.M so that its Run ends the shared broker after the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(kafka.Main(m)) }
func Main(m interface{ Run() int }) *MainRunner { return &MainRunner{m} }

// MainRunner runs a package's tests. See [Main].
type MainRunner struct{ m interface{ Run() int } }

// Run runs the tests and returns their exit code.
func (r *MainRunner) Run() int {
	defer endShared()
	return r.m.Run()
}

func endShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.broker != nil {
		_ = shared.broker.Kill() // nobody needs its data; a failure to kill has no remedy here
		shared.broker = nil
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
}
