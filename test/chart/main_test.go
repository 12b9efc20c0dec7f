package chart

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

var update = flag.Bool("update", false, "write what is generated instead of comparing it")

const (
	root     = "../.."
	chartDir = root + "/charts/deltabridge"
)

// tools are the programs, by absolute path.
var tools struct{ helm, helmDocs, promtool, bridge string }

func TestMain(m *testing.M) {
	flag.Parse()
	klog.LogToStderr(false)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "deltabridge-chart-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		klog.StopFlushDaemon()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "chart:", err)
			return 1
		}
	}
	return code
}

// build makes the programs. Those of others take minutes the first time and nothing later.
func build(dir string) error {
	bin, err := filepath.Abs(root + "/bin/tools")
	if err != nil {
		return err
	}
	tools.helm, tools.helmDocs, tools.promtool = filepath.Join(
		bin,
		"helm",
	), filepath.Join(
		bin,
		"helmdocs",
	), filepath.Join(
		bin,
		"promtool",
	)
	tools.bridge = filepath.Join(dir, "bridge")
	for _, cmd := range []*exec.Cmd{
		exec.Command("make", "-s", "-C", root, "chart-tools"),
		// Unlike "go build", "go run" caches programs.
		exec.Command("go", "run", "-exec=cp", "-ldflags=-s -w", "github.com/deltabridge/deltabridge/cmd/bridge", tools.bridge),
	} {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%v: %w", cmd.Args, err)
		}
	}
	return nil
}

// inputs opens the files that the programs read and are built of. Results of tests are kept as long as what a test
// itself has opened is unchanged; what other processes open does not count.
var inputs = sync.OnceValue(func() error {
	for _, dir := range []string{chartDir, root + "/cmd/bridge", root + "/internal", root + "/pkg", root + "/tools/helm", root + "/tools/helmdocs", root + "/tools/promtool"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			return f.Close()
		})
		if err != nil {
			return err
		}
	}
	return nil
})

// command runs a program to its end, for at most two minutes. The error holds what it said.
func command(t *testing.T, program string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	if err := inputs(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	home := t.TempDir() // helm keeps nothing that a test could see
	cmd.Env = append(
		os.Environ(),
		"HOME="+home,
		"XDG_CACHE_HOME="+home,
		"XDG_CONFIG_HOME="+home,
		"XDG_DATA_HOME="+home,
		"KUBECONFIG=",
		"HELM_NAMESPACE=",
	)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err = cmd.Run(); err != nil {
		err = errors.New(filepath.Base(program) + " " + args[0] + ": " + err.Error() + "\n" + said.String())
	}
	return out.String(), said.String(), err
}

// helm runs helm and fails the test if it fails.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := command(t, tools.helm, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// writeFile writes a file of the test and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
