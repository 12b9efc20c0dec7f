// Command demo shows the bridge at work, with nothing to set up: it starts a local Kubernetes control plane (unless
// KUBECONFIG names a cluster), the bridge with its embedded JetStream server, and a small workload that creates,
// changes and deletes objects. It is what `make run` runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/process"
)

func main() {
	bridge := flag.String("bridge", "bin/bridge", "the bridge's binary")
	dir := flag.String("dir", ".work/demo", "folder of the control plane's data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bridge, *dir, os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bridge, dir string, out io.Writer) error {
	kubeconfig := os.Getenv("KUBECONFIG")
	workload := func(context.Context, *rest.Config) error { return nil }
	if kubeconfig == "" {
		local, err := startLocal(ctx, dir, out)
		if err != nil {
			return err
		}
		defer func() {
			fmt.Fprintln(out, "stopping the control plane")
			if err := local.Stop(); err != nil {
				fmt.Fprintln(out, "control plane:", err)
			}
		}()
		kubeconfig = local.Kubeconfig()
		workload = func(ctx context.Context, config *rest.Config) error {
			var controllers sync.WaitGroup
			controllers.Go(func() { startControllers(ctx, local, out) })
			defer controllers.Wait()
			return runWorkload(ctx, config)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}

	file, addrs, err := writeConfig(dir, kubeconfig)
	if err != nil {
		return err
	}
	cmd := exec.Command(bridge, "run", "--config", file, "--print")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	// A group of its own: Ctrl-C reaches this program, which then ends the bridge first and the control plane last.
	cmd.SysProcAttr = process.Attr()
	cmd.SysProcAttr.Setpgid = true
	running, err := process.Start(cmd)
	if err != nil {
		return fmt.Errorf("start the bridge: %w", err)
	}
	introduce(out, config.Host, kubeconfig, addrs)

	workCtx, stopWork := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- workload(workCtx, config) }() // received below, on every path
	var failure error
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "\nstopping the bridge")
		_ = running.Signal(syscall.SIGTERM) // if it has just ended, that is as well
		failure = running.Wait()
	case <-running.Done():
		failure = errors.Join(errors.New("the bridge ended by itself"), running.Wait())
	}
	stopWork()
	if err := <-worked; err != nil && ctx.Err() == nil {
		failure = errors.Join(failure, fmt.Errorf("workload: %w", err))
	}
	return failure
}

func startLocal(ctx context.Context, dir string, out io.Writer) (*cluster.Cluster, error) {
	fmt.Fprintln(out, "starting a local Kubernetes control plane (set KUBECONFIG to watch a cluster of yours instead)")
	local, err := cluster.Start(ctx, cluster.Options{Dir: filepath.Join(dir, "cluster"), Log: out})
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return local, nil
}

// startControllers starts the controller manager. The first time, it is built while the first events are shown, which
// need no controllers.
func startControllers(ctx context.Context, local *cluster.Cluster, out io.Writer) {
	_, err := cluster.Build(ctx, io.Discard, cluster.Options{ControllerManager: true})
	if err == nil {
		err = local.StartControllerManager(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		fmt.Fprintln(out, "the controller manager does not run:", err)
	default:
		fmt.Fprintln(out, "the controller manager runs: Deployments get Pods")
	}
}

// addresses of what the bridge serves.
type addresses struct{ nats, http string }

// writeConfig writes the bridge's configuration, with the usual ports where they are free.
func writeConfig(dir, kubeconfig string) (string, addresses, error) {
	addrs := addresses{nats: freeAddress(4222), http: freeAddress(8080)}
	kubeconfig, err := filepath.Abs(kubeconfig)
	if err != nil {
		return "", addrs, err
	}
	text := fmt.Sprintf(`# Written by make run.
cluster: demo
kubeconfig: %s
state: {path: %s}
http: {listen: %s, ui: true}
log: {level: warn}
watch:
  - resources: ["*"]
    exclude: [leases.coordination.k8s.io] # renewed every few seconds by the control plane itself
sinks:
  - name: jetstream
    nats:
      embedded: {listen: %s, storeDir: %s}
      stream: {name: K8S, create: true, subjects: ["k8s.>"]}
`, strconv.Quote(kubeconfig), strconv.Quote(filepath.Join(dir, "state")), addrs.http, addrs.nats, strconv.Quote(filepath.Join(dir, "nats")))
	file := filepath.Join(dir, "bridge.yaml")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", addrs, err
	}
	return file, addrs, os.WriteFile(file, []byte(text), 0o600)
}

func freeAddress(port int) string {
	for _, p := range []int{port, 0} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err != nil {
			continue
		}
		addr := l.Addr().String()
		_ = l.Close() // the bridge takes it next
		return addr
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) // the bridge will say what is wrong
}

func introduce(out io.Writer, host, kubeconfig string, addrs addresses) {
	fmt.Fprintf(out, `
running
  live page        http://%s
  Kubernetes API   %s   (kubectl --kubeconfig %s get all -A)
  JetStream        nats://%s   stream K8S, subjects k8s.<cluster>.<group>.<resource>.<namespace>.<name>
  metrics, health  http://%s/metrics   http://%s/readyz

look at the stream from another terminal, with an independent client:
  go run github.com/nats-io/nats.go/examples/nats-sub@v1.55.0 -s nats://%s "k8s.>"

each line below is a change that JetStream has acknowledged, after the number of objects that were there before;
Deployments have no Pods until the controller manager runs, which is built meanwhile if needed; Ctrl-C ends everything

`, addrs.http, host, kubeconfig, addrs.nats, addrs.http, addrs.http, addrs.nats)
}

// settle is how long the workload waits for the bridge to come up before its first change.
const settle = 3 * time.Second
