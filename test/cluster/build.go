package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/test/work"
)

const (
	modulePath     = "github.com/deltabridge/deltabridge"
	progressPeriod = 10 * time.Second

	// versionVariable names an environment variable with another version of Kubernetes than that of
	// test/controlplane/go.mod, such as 1.36.3: test/matrix.
	versionVariable = "DELTABRIDGE_TEST_KUBERNETES"
)

// compilerFlags are those of the bridge's release build (RELEASE in the Makefile), so that packages that both programs
// contain are compiled once, except for Kubernetes' own code: without inlining, it compiles in five sixths of the time.
var compilerFlags = []string{
	"-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-gcflags=k8s.io/kubernetes/...=-dwarf=false -l",
}

// Binaries are the paths of the programs that Build made.
type Binaries struct {
	ControlPlane string
	// ControllerManager is empty unless Options.ControllerManager asked for it.
	ControllerManager string
}

// Build compiles the programs of the control plane, from the module
// test/controlplane of the repository around the working directory into its
// directory .work/bin. Of the options only ControllerManager counts. With another version
// of Kubernetes (versionVariable) it is the directory .work/kubernetes-VERSION.
//
// The first build takes minutes, and Build writes its progress to log. Later
// ones are left to Go's build cache, and while no file of the module is newer
// than the program, there is none: the go command takes a second and more to find
// out that nothing is to do, and tests start many clusters. Several processes may
// build at once: they take turns.
func Build(ctx context.Context, log io.Writer, opts Options) (Binaries, error) {
	root, err := work.Repository()
	if err != nil {
		return Binaries{}, fmt.Errorf("build control plane: %w", err)
	}
	version, name := os.Getenv(versionVariable), "bin"
	if version != "" {
		name = "kubernetes-" + version
	}
	bin, err := work.Dir(name)
	if err != nil {
		return Binaries{}, fmt.Errorf("build control plane: %w", err)
	}
	unlock, err := work.Lock(ctx, filepath.Join(bin, "build.lock"), func() {
		fmt.Fprintln(log, "waiting for another process that builds the control plane")
	})
	if err != nil {
		return Binaries{}, fmt.Errorf("build control plane: %w", err)
	}
	defer unlock()

	b := builder{module: filepath.Join(root, "test", "controlplane"), log: log}
	if version != "" {
		b.modfile = filepath.Join(bin, "go.mod")
		if err := b.writeModfile(ctx, version); err != nil {
			return Binaries{}, fmt.Errorf("build control plane of Kubernetes %s: %w", version, err)
		}
	}
	made := Binaries{ControlPlane: filepath.Join(bin, "controlplane")}
	if err := b.build(ctx, ".", made.ControlPlane); err != nil {
		return Binaries{}, err
	}
	if opts.ControllerManager {
		made.ControllerManager = filepath.Join(bin, "controllermanager")
		if err := b.build(ctx, "./controllermanager", made.ControllerManager); err != nil {
			return Binaries{}, err
		}
	}
	return made, nil
}

// builder compiles packages of one module.
type builder struct {
	module  string // directory
	modfile string // replaces the module's go.mod; empty: nothing does
	log     io.Writer
}

// build compiles the package into the file target, if that is needed.
func (b builder) build(ctx context.Context, pkg, target string) error {
	name := filepath.Base(target)
	switch upToDate, err := b.upToDate(target); {
	case err != nil:
		return fmt.Errorf("build %s: %w", name, err)
	case upToDate:
		return nil
	}
	start := time.Now()
	flags, err := b.versionFlags()
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b.log, "building %s from the Kubernetes sources: the first time this takes minutes\n", name)
	}
	// Unlike "go build", "go run" finds the linked program in Go's cache: a fresh clone need not link it.
	fresh := target + ".new"
	args := append([]string{"run", "-exec=cp", "-modfile=" + b.modfile, "-v", "-ldflags", flags}, compilerFlags...)
	cmd := b.command(ctx, append(args, pkg, fresh)...)
	output, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	messages := b.follow(name, output)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, messages)
	}
	// The time is that of the start: a file may have changed meanwhile. The earlier program may be running.
	if err := errors.Join(os.Chtimes(fresh, start, start), os.Rename(fresh, target)); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	return nil
}

// command returns a go command in the module's directory.
func (b builder) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.module
	// The module stands alone, whatever workspace the main one is used in. Without cgo: a second setting would mean to
	// compile Kubernetes a second time.
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	// Interrupted, the go command ends the compilers that it started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTimeout
	return cmd
}

// upToDate reports whether no file of the module is newer than target.
func (b builder) upToDate(target string) (bool, error) {
	built, err := os.Stat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	newer := errors.New("newer")
	err = filepath.WalkDir(b.module, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(built.ModTime()) {
			return newer
		}
		return err
	})
	if errors.Is(err, newer) {
		return false, nil
	}
	return err == nil, err
}

// packageLine is a line of "go build -v" that names a compiled package. All
// other lines are messages (or downloads, which are shown like them).
var packageLine = regexp.MustCompile(`^[\w.\-~/]+$`)

// follow reads what "go build -v" says until it ends, shows the progress now and
// then, and returns the messages.
func (b builder) follow(name string, output io.Reader) (messages []byte) {
	var compiled atomic.Int64
	start := time.Now()
	ended, reported := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(reported)
		tick := time.NewTicker(progressPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				fmt.Fprintf(b.log, "building %s: %d packages compiled in %s\n",
					name, compiled.Load(), time.Since(start).Round(time.Second))
			}
		}
	}()
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20) // a longer line would end the scan, and the build would hang
	for lines.Scan() {
		if packageLine.Match(lines.Bytes()) {
			compiled.Add(1)
			continue
		}
		messages = append(append(messages, lines.Bytes()...), '\n')
	}
	_, _ = io.Copy(io.Discard, output) // whatever happens, the pipe is read to its end
	close(ended)
	<-reported
	if took := time.Since(start); compiled.Load() > 1 {
		fmt.Fprintf(b.log, "built %s: %d packages compiled in %s\n", name, compiled.Load(), took.Round(time.Second))
	}
	return messages
}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`)

// versionFlags tell the linker which version the programs should say they are.
// Without them it is v0.0.0, which clients that look at the version refuse.
func (b builder) versionFlags() (string, error) {
	path := b.modfile
	if path == "" {
		path = filepath.Join(b.module, "go.mod")
	}
	gomod, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	m := kubernetesVersion.FindSubmatch(gomod)
	if m == nil {
		return "", errors.New("its go.mod does not require k8s.io/kubernetes")
	}
	const v = "k8s.io/component-base/version"
	// -s -w: no symbol table for debuggers; the binary links in half the time.
	return fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", v, m[1], v, m[2], v, m[3]), nil
}
