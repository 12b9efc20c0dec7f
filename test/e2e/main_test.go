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

// bridgeBinary is built once for all tests.
var bridgeBinary string

func TestMain(m *testing.M) {
	if file := os.Getenv(natsVariable); file != "" {
		fmt.Fprintln(os.Stderr, serveNATS(file))
		os.Exit(1)
	}
	if err := flag.Set(
		"test.parallel",
		"4",
	); err != nil { // more than CPUs: the tests mostly wait; the command line can say otherwise
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	dir, err := buildBridge()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(cluster.Main(kafka.Main(m)), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir) // what is left lies in the system's folder for such things
		os.Exit(code)
	}))
}

func buildBridge() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "deltabridge-e2e-"); err != nil {
		return "", err
	}
	bridgeBinary = filepath.Join(dir, "bridge")
	args := []string{"build", "-ldflags=-s -w", "-o", bridgeBinary} // links in half the time
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/deltabridge/deltabridge/cmd/bridge")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err = build.Run(); err != nil {
		return "", fmt.Errorf("build the bridge: %w", err)
	}
	return dir, nil
}

// sharedCluster is the control plane of the tests that do not disturb it.
func sharedCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	return cluster.Shared(t)
}
