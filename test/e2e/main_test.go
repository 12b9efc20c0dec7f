package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// The programs are built once for all tests.
var bridgeBinary, natsBinary string

func TestMain(m *testing.M) {
	_ = os.Unsetenv("GOGC") // the bridge runs with the default; this process has read it
	if err := flag.Set(
		"test.parallel",
		"5",
	); err != nil { // more than CPUs: the tests mostly wait; the command line can say otherwise
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	dir, err := buildPrograms()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(cluster.Main(kafka.Main(m)), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir) // what is left lies in the system's folder for such things
		os.Exit(code)
	}))
}

func buildPrograms() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "deltabridge-e2e-"); err != nil {
		return "", err
	}
	bridgeBinary, natsBinary = filepath.Join(dir, "bridge"), filepath.Join(dir, "nats-server")
	args := []string{"github.com/deltabridge/deltabridge/cmd/bridge", bridgeBinary}
	if raceDetector {
		args = append([]string{"-race"}, args...)
	}
	for _, args := range [][]string{args, {"github.com/nats-io/nats-server/v2", natsBinary}} {
		// Unlike "go build", "go run" caches programs.
		build := exec.Command("go", append([]string{"run", "-exec=cp", "-ldflags=-s -w"}, args...)...)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err = build.Run(); err != nil {
			return "", fmt.Errorf("go %v: %w", build.Args, err)
		}
	}
	return dir, nil
}

// sharedCluster is the control plane of the tests that do not disturb it.
func sharedCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	return cluster.Shared(t)
}
