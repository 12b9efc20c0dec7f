package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/test/freeport"
	"github.com/deltabridge/deltabridge/test/poll"
)

const (
	// readyTimeout is how long a process may take to become ready. It is long
	// for a machine that does much else at the same time.
	readyTimeout = 2 * time.Minute
	readyPoll    = 50 * time.Millisecond
)

// Options say what cluster to start. Only Dir is required.
type Options struct {
	// Dir is the folder of the cluster. It is made if it does not exist, and it
	// stays when the cluster stops.
	Dir string
	// ControllerManager also builds and starts the kube-controller-manager, so
	// that Deployments get ReplicaSets and Pods, and namespaces their default
	// service accounts.
	ControllerManager bool
	// CompactionInterval is how often the API server cuts etcd's history.
	// Zero: never.
	CompactionInterval time.Duration
	// APIServerFlags are given to kube-apiserver behind the flags set here, and
	// so win over them.
	APIServerFlags []string
	// Log takes the progress of a build. Nil: os.Stderr.
	Log io.Writer
}

// Cluster is a running control plane. Its methods may be called concurrently;
// those that start and stop processes take turns.
type Cluster struct {
	opts              Options
	binaries          Binaries
	etcdPort, apiPort int
	gateway           *http.Client // to etcd

	mu                sync.Mutex // guards what follows
	etcd, api, ctlmgr program
	config            *rest.Config // nil before the API server was ready once
}

// Start builds the programs if needed, starts the cluster and waits until it is
// ready. ctx limits the start alone: the cluster then runs until Stop. When
// Start fails, nothing is left running.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	c, err := newCluster(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return c.onFreePort(ctx, &c.etcd, &c.etcdPort, c.StartEtcd) },
		func(ctx context.Context) error { return c.onFreePort(ctx, &c.api, &c.apiPort, c.StartAPIServer) },
	}
	if opts.ControllerManager {
		steps = append(steps, c.StartControllerManager)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Stop())
		}
	}
	return c, nil
}

// onFreePort calls start, and again with another port if another process has
// taken the port.
func (c *Cluster) onFreePort(
	ctx context.Context, p *program, port *int, start func(context.Context) error,
) error {
	const attempts = 3
	err := start(ctx)
	for n := 1; n < attempts && err != nil && strings.Contains(err.Error(), "address already in use"); n++ {
		another, failure := freeport.Reserve(1)
		if failure != nil {
			return failure
		}
		c.mu.Lock()
		*port = another[0]
		failure = p.kill() // it has ended
		c.mu.Unlock()
		if failure != nil {
			return failure
		}
		err = start(ctx)
	}
	return err
}

func newCluster(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Dir == "" {
		return nil, errors.New("no folder given")
	}
	var err error
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = os.Stderr
	}
	binaries, err := Build(ctx, opts.Log, opts)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, binaries: binaries, gateway: &http.Client{Transport: &http.Transport{}}}
	found, err := freeport.Reserve(2)
	if err != nil {
		return nil, err
	}
	c.etcdPort, c.apiPort = found[0], found[1]
	for p, name := range map[*program]string{&c.etcd: "etcd", &c.api: "apiserver", &c.ctlmgr: "controller-manager"} {
		*p = program{name: name, log: filepath.Join(opts.Dir, name+".log")}
	}
	return c, nil
}

// Kubeconfig returns the path of the administrator's kubeconfig. It carries the
// cluster's certificate authority and a token of the group system:masters.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.opts.Dir, "kubeconfig") }

// RESTConfig returns the administrator's client configuration, without a rate
// limit on the client's side. The caller owns it.
func (c *Cluster) RESTConfig() *rest.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rest.CopyConfig(c.config)
}

// APIServerURL returns the address of the API server.
func (c *Cluster) APIServerURL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

// EtcdURL returns the address of etcd: gRPC and the HTTP/JSON gateway.
func (c *Cluster) EtcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort) }

// Stop ends all processes, the API server before etcd. It returns an error for
// each that had ended by itself before. A second Stop does nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Not the caller's context: whatever it says, nothing may stay behind.
	ctx := context.Background()
	err := errors.Join(c.ctlmgr.stop(ctx), c.api.stop(ctx), c.etcd.stop(ctx))
	c.gateway.CloseIdleConnections()
	return err
}

// StartEtcd starts etcd on its port and waits until it serves.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.etcd.start(c.binaries.ControlPlane,
		"etcd", "--dir="+c.opts.Dir, fmt.Sprintf("--port=%d", c.etcdPort), "--unsafe-no-fsync")
	if err != nil {
		return err
	}
	return c.wait(ctx, &c.etcd, c.etcdHealth)
}

// StopEtcd ends etcd in order. The API server stays up, but not ready.
func (c *Cluster) StopEtcd(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.etcd.stop(ctx)
}

// KillEtcd ends etcd at once, as a crash of the process would.
func (c *Cluster) KillEtcd() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.etcd.kill()
}

// RestartEtcd stops etcd, starts it again, and waits until the API server is
// ready with it, if that runs.
func (c *Cluster) RestartEtcd(ctx context.Context) error {
	if err := c.StopEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartEtcd(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api.run == nil {
		return nil
	}
	return c.wait(ctx, &c.api, c.apiReady)
}

// StartAPIServer starts the API server on its port and waits until it is ready
// and has created its own objects.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	args := []string{
		"apiserver", "--dir=" + c.opts.Dir, fmt.Sprintf("--port=%d", c.apiPort), "--etcd=" + c.EtcdURL(),
		"--compaction-interval=" + c.opts.CompactionInterval.String(), "--",
	}
	if err := c.api.start(c.binaries.ControlPlane, append(args, c.opts.APIServerFlags...)...); err != nil {
		return err
	}
	return c.wait(ctx, &c.api, c.apiReady)
}

// StopAPIServer ends the API server in order: it says to its clients that it
// goes. If ctx ends first, it is killed.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.api.stop(ctx)
}

// KillAPIServer ends the API server at once, as a crash would.
func (c *Cluster) KillAPIServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.api.kill()
}

// StartControllerManager starts the kube-controller-manager, and builds it if
// needed. It waits until the controllers have made the "default" service account
// of the namespace "default": on a new cluster the sign that they work.
func (c *Cluster) StartControllerManager(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.binaries.ControllerManager == "" {
		made, err := Build(ctx, c.opts.Log, Options{ControllerManager: true})
		if err != nil {
			return err
		}
		c.binaries = made
	}
	if err := c.ctlmgr.start(c.binaries.ControllerManager, "--dir="+c.opts.Dir); err != nil {
		return err
	}
	return c.wait(ctx, &c.ctlmgr, func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(c.config)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// wait asks again and again until ready returns no error. It gives up when ctx
// ends, after readyTimeout, or when the process ends.
func (c *Cluster) wait(ctx context.Context, p *program, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := poll.Until(ctx, readyPoll, readyTimeout, func() error {
		err := ready(ctx)
		if err != nil && p.run.Ended() {
			return poll.Permanent(err)
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case p.run.Ended():
		return p.endedByItself(p.run)
	}
	return fmt.Errorf("%s is not ready: %w; the end of %s:\n%s", p.name, err, p.log, p.tail())
}

// apiReady asks the API server with the kubeconfig that it wrote when it
// started: a server of somebody else on the port does not pass for ours.
func (c *Cluster) apiReady(ctx context.Context) error {
	if c.config == nil {
		config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
		if err != nil {
			return err
		}
		if config.Host != c.APIServerURL() {
			return errors.New("the kubeconfig is still that of an earlier start")
		}
		config.QPS = -1 // no limit
		c.config = config
	}
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	return ownObjects(ctx, client)
}

// ownObjects reports what is still missing of the objects that an API server
// creates by itself. It creates them in the background, some after it is ready.
func ownObjects(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, want := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		if !slices.ContainsFunc(list.Items, func(ns corev1.Namespace) bool { return ns.Name == want }) {
			return fmt.Errorf("there is no namespace %s", want)
		}
	}
	_, err = client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}
