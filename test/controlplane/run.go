package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/test/controlplane/internal/folder"
)

const (
	// readyTimeout is how long a process may take to become ready.
	readyTimeout = 2 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// runOptions are the flags of "run".
type runOptions struct {
	dir               string
	apiPort, etcdPort int // 0: any free one
	controllerManager bool
	noFsync           bool
	compaction        time.Duration
	extra             []string // more flags for kube-apiserver
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [-- KUBE-APISERVER-FLAGS]",
		Short: "Everything in one go, until Ctrl-C",
		RunE: func(cmd *cobra.Command, extra []string) error {
			o.extra = extra
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return run(ctx, cmd.OutOrStdout(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", "data/controlplane", "folder of the cluster: a new one, or that of an earlier run")
	flags.IntVar(&o.apiPort, "apiserver-port", 0, "HTTPS port of the API server on 127.0.0.1; 0 takes a free one")
	flags.IntVar(&o.etcdPort, "etcd-port", 0, "client port of etcd on 127.0.0.1; 0 takes a free one")
	flags.BoolVar(&o.controllerManager, "controller-manager", false,
		"also run the kube-controller-manager: the binary controllermanager beside this one")
	flags.BoolVar(&o.noFsync, "unsafe-no-fsync", false, "etcd never waits for the disk")
	flags.DurationVar(&o.compaction, "compaction-interval", compactionInterval,
		"how often etcd's history is cut; 0 keeps all of it")
	return cmd
}

// run starts the processes one after the other, says where they are, and ends
// them in the opposite order when ctx ends or one of them fails.
func run(ctx context.Context, out io.Writer, o runOptions) (err error) {
	p, err := newPlane(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	for _, start := range []func(context.Context) error{p.startEtcd, p.startAPIServer, p.startControllerManager} {
		if err := start(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // Ctrl-C during the start
			}
			return err
		}
	}
	fmt.Fprintf(out, "API server  %s\netcd        %s\nkubeconfig  %s\nlogs        %s\n",
		p.apiURL(), p.etcdURL(), p.folder.Kubeconfig(), p.folder.Log("*"))
	fmt.Fprintln(out, "The control plane is ready. Ctrl-C ends it; its data stay for the next run.")

	select {
	case <-ctx.Done():
		return nil
	case c := <-p.ended:
		// stop names the process that ended; the others end in order.
		return fmt.Errorf("the control plane ends, because %s did", c.name)
	}
}

// plane is the set of processes that "run" owns.
type plane struct {
	runOptions
	folder   *folder.Folder
	self     string      // path of this program
	children []*child    // in the order of their start
	ended    chan *child // each child, when it has ended
}

func newPlane(o runOptions) (*plane, error) {
	f, err := folder.Open(o.dir)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	for _, port := range []*int{&o.etcdPort, &o.apiPort} {
		if *port != 0 {
			continue
		}
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	return &plane{runOptions: o, folder: f, self: self, ended: make(chan *child, 3)}, nil
}

func (p *plane) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.etcdPort) }
func (p *plane) apiURL() string  { return fmt.Sprintf("https://127.0.0.1:%d", p.apiPort) }

func (p *plane) startEtcd(ctx context.Context) error {
	return p.start(ctx, "etcd", p.self, p.etcdReady,
		"etcd", "--dir="+p.folder.Path(),
		fmt.Sprintf("--port=%d", p.etcdPort),
		fmt.Sprintf("--unsafe-no-fsync=%t", p.noFsync))
}

func (p *plane) startAPIServer(ctx context.Context) error {
	args := []string{
		"apiserver", "--dir=" + p.folder.Path(),
		fmt.Sprintf("--port=%d", p.apiPort),
		"--etcd=" + p.etcdURL(),
		"--compaction-interval=" + p.compaction.String(), "--",
	}
	return p.start(ctx, "apiserver", p.self, p.apiReady, append(args, p.extra...)...)
}

// startControllerManager does nothing unless the flag asks for it. It does not
// wait: the controllers begin when they can, and nobody talks to them.
func (p *plane) startControllerManager(ctx context.Context) error {
	if !p.controllerManager {
		return nil
	}
	path := filepath.Join(filepath.Dir(p.self), "controllermanager")
	return p.start(ctx, "controller-manager", path, func(context.Context) error { return nil },
		"--dir="+p.folder.Path())
}

// start starts one process and waits until ready returns no error.
func (p *plane) start(ctx context.Context, name, path string, ready func(context.Context) error, args ...string) error {
	c, err := startChild(name, p.folder.Log(name), path, p.ended, args...)
	if err != nil {
		return err
	}
	p.children = append(p.children, c)

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w, see %s", name, err, c.log)
		case <-c.done:
			return fmt.Errorf("%s did not become ready", name) // stop says how it ended
		case <-poll.C:
		}
	}
}

// stop ends the processes, the last one first.
func (p *plane) stop() error {
	var errs []error
	for _, c := range slices.Backward(p.children) {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
}

// etcdReady asks etcd itself.
func (p *plane) etcdReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.etcdURL()+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /health: %s", resp.Status)
	}
	return nil
}

// apiReady asks the API server with the kubeconfig that it has just written, so
// that a server of somebody else on the port does not pass for ours.
func (p *plane) apiReady(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", p.folder.Kubeconfig())
	if err != nil {
		return err
	}
	if config.Host != p.apiURL() {
		return errors.New("the kubeconfig is still that of the last run")
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.GroupVersion = &schema.GroupVersion{}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	return client.Get().AbsPath("/readyz").Do(ctx).Error()
}

// freePort returns a port of 127.0.0.1 on which nobody listens. It looks below
// the range from which systems take the ports of outgoing connections (from
// 32768 on Linux): a process that is restarted must find its port free again.
func freePort() (int, error) {
	const first, count, attempts = 20000, 10000, 100
	var err error
	for range attempts {
		port := first + rand.IntN(count)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
