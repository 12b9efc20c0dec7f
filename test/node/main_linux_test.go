package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const (
	root = "../.."
	// earlier is the version from which the test upgrades. Its chart requires the one manual step of docs/operations.md.
	earlier    = "2295de6"
	namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC
)

// dir is where everything is that the test builds and that the node writes.
var dir = func() string {
	path, err := filepath.Abs(root + "/.work/node")
	if err != nil {
		panic(err)
	}
	return path
}()

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("DELTABRIDGE_TEST_NODE") == "":
		return // not part of `make test`
	case os.Getpid() == 1:
		os.Exit(m.Run())
	}
	if err := missing(); err != nil {
		fmt.Println("test/node: skipped:", err)
		return
	}
	err := build()
	if err == nil {
		err = runInNamespaces()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/node:", err)
		os.Exit(1)
	}
}

// missing returns why this machine cannot run a node, or nil.
func missing() error {
	if os.Geteuid() != 0 {
		return errors.New("a node requires root")
	}
	try := exec.Command("/bin/true")
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := try.Run(); err != nil {
		return fmt.Errorf("this machine does not allow new namespaces: %w", err)
	}
	for _, program := range []string{"ip", "mount", "script", "git", "make", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("install iproute2, util-linux, git, make and bash: %w", err)
		}
	}
	// Unpacked, not installed: the machine stays as it is.
	if err := run(dir, "test -e debian/usr/sbin/runc -a -e debian/usr/lib/cni/bridge || { "+
		"apt-get -q download runc containernetworking-plugins && for p in *.deb; do dpkg -x $p debian; done; }"); err != nil {
		return fmt.Errorf("cannot download Debian's packages runc and containernetworking-plugins with apt-get: %w", err)
	}
	return nil
}

// build builds programs and images. The first time this takes many minutes.
func build() error {
	release := "CGO_ENABLED=0 GOWORK=off go build -buildvcs=false -ldflags '-s -w'"
	for _, step := range []struct{ what, command string }{
		{"control plane", "go run ./test/cluster/prebuild"},
		{"kubelet, scheduler, kubectl, CoreDNS", "cd test/node/programs && " + release + " -o $DIR/bin/ . ./coredns ./pause && " +
			"for p in kubelet kube-scheduler kubectl; do ln -sf programs $DIR/bin/$p; done"},
		{"containerd", "cd test/node/containerd && " + release + " -tags 'no_btrfs no_devmapper no_zfs' -o $DIR/bin/ tool"},
		{"nats-server", release + " -o $DIR/bin/ github.com/nats-io/nats-server/v2"},
		{"Helm", "make -s bin/tools/helm && ln -sf $PWD/bin/tools/helm $DIR/bin/"},
		{"image", "make -s image VERSION=dev IMAGE=$DIR/dev && mkdir -p $DIR/now && ln -sfn $PWD/charts $DIR/now/charts"},
		{"image of " + earlier, "test -e $DIR/earlier.image/layout || { mkdir -p $DIR/earlier && git archive " + earlier +
			" | tar -x -C $DIR/earlier && make -s -C $DIR/earlier image VERSION=earlier IMAGE=$DIR/earlier.image; }"},
	} {
		start := time.Now()
		if err := run(root, step.command); err != nil {
			return fmt.Errorf("build %s: %w", step.what, err)
		}
		fmt.Printf("built %s in %.1f s\n", step.what, time.Since(start).Seconds())
	}
	for _, program := range []string{"pause", "nats-server"} {
		if err := writeImage(program); err != nil {
			return fmt.Errorf("image of %s: %w", program, err)
		}
	}
	return nil
}

// run runs a shell command.
func run(in, command string) error {
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = in, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "DIR="+dir)
	return cmd.Run()
}

// runInNamespaces runs this program again as process 1 of the node, and removes what remains of the node.
func runInNamespaces() error {
	for _, name := range []string{"state", "log"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	defer os.RemoveAll(filepath.Join(dir, "state"))
	defer removeCgroups()
	cgroup := fmt.Sprintf("deltabridge-node-%d", os.Getpid())
	if err := makeCgroups(cgroup); err != nil {
		return err
	}
	node := exec.Command("/proc/self/exe", os.Args[1:]...)
	node.Stdout, node.Stderr = os.Stdout, os.Stderr
	node.Env = append(os.Environ(), "NODE_CGROUP="+cgroup)
	node.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is sent when this thread ends
	return node.Run()
}

// hierarchies returns the directories of the cgroup hierarchies: those of version 1, otherwise the only one of version 2.
func hierarchies() []string {
	all, _ := filepath.Glob("/sys/fs/cgroup/*/tasks") // the pattern is valid
	for i := range all {
		all[i] = filepath.Dir(all[i])
	}
	if len(all) == 0 {
		all = []string{"/sys/fs/cgroup"}
	}
	return all
}

// makeCgroups makes the cgroup that contains those of all Pods.
func makeCgroups(name string) error {
	removeCgroups() // of processes that were killed
	for _, parent := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(parent, name), 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // version 1 does not inherit them
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err != nil {
				continue // another hierarchy
			}
			if err := os.WriteFile(filepath.Join(parent, name, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroups removes the cgroups that tests made and that have no processes. The kernel may need a moment to notice
// that.
func removeCgroups() {
	_ = run(dir, "for try in 1 2 3; do find /sys/fs/cgroup -depth -type d -path '*/deltabridge-node-*' -exec rmdir {} + "+
		"2>/dev/null && break; sleep 1; done") // fails for a test that runs
}
