package election

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// This file is what the tests against the real API server share.

// kube is an administrator, and the namespace of a test.
type kube struct {
	*kubernetes.Clientset
	*rest.Config

	t         *testing.T
	namespace string
}

func newKube(t *testing.T) *kube {
	t.Helper()
	config := cluster.Shared(t).RESTConfig()
	typed, err := kubernetes.NewForConfig(config)
	observe.Must(t, err)
	ns, err := typed.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "election-"}}, metav1.CreateOptions{})
	observe.Must(t, err)
	return &kube{typed, config, t, ns.Name}
}

// server returns the address of the API server.
func (k *kube) server() string { return strings.TrimPrefix(k.Host, "https://") }

// proxy returns a proxy to the API server, and the administrator's configuration for it.
func (k *kube) proxy() (*sinktest.Proxy, *rest.Config) {
	k.t.Helper()
	proxy := sinktest.NewProxy(k.t, k.server())
	through := rest.CopyConfig(k.Config)
	through.Host = "https://" + proxy.Addr()
	return proxy, through
}

const leaseName = "leader"

// quick returns a configuration with short durations. A machine that does much else may take a second for a request.
func quick(namespace string) Config {
	return Config{
		Lease:         Lease{Namespace: namespace, Name: leaseName},
		LeaseDuration: 5 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 200 * time.Millisecond,
	}
}

// steady returns a configuration with which the Lease does not expire, also if the machine stands still for a while.
func (k *kube) steady() Config {
	config := k.config()
	config.LeaseDuration, config.RenewDeadline = 30*time.Second, 20*time.Second
	return config
}

// firm returns a configuration whose Lease expires soon, but not if the machine stands still for five seconds.
func (k *kube) firm() Config {
	config := k.config()
	config.LeaseDuration, config.RenewDeadline = 8*time.Second, 7*time.Second
	return config
}

// config returns a configuration with short durations for the Lease of the test.
func (k *kube) config() Config { return quick(k.namespace) }

// slow returns a configuration with which a candidate makes one attempt, and polls only after the end of the test.
func (k *kube) slow() Config {
	config := k.config()
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod = time.Hour, 50*time.Minute, 10*time.Minute
	return config
}

func (k *kube) lease() *coordinationv1.Lease {
	k.t.Helper()
	lease, err := k.CoordinationV1().Leases(k.namespace).Get(k.t.Context(), leaseName, metav1.GetOptions{})
	observe.Must(k.t, err)
	return lease
}

// expectHolder fails unless the Lease has the holder.
func (k *kube) expectHolder(want string) {
	k.t.Helper()
	if got := *k.lease().Spec.HolderIdentity; got != want {
		k.t.Errorf("the holder of the Lease is %q, not %q", got, want)
	}
}

// createLease creates the Lease of a process that does not renew it.
func (k *kube) createLease(holder string, duration time.Duration) {
	k.t.Helper()
	seconds, now := int32(duration.Seconds()), metav1.NowMicro()
	_, err := k.CoordinationV1().Leases(k.namespace).Create(k.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	observe.Must(k.t, err)
}

// process is a candidate that runs.
type process struct {
	*Candidate

	t      *testing.T
	log    *logBuffer
	terms  chan *Term    // receives the terms
	finish chan struct{} // ends the work of a term
	stop   func()        // ends the context of Lead
	ended  chan struct{} // closed when Lead has returned
}

// start runs a candidate until the end of the test. The work of its terms calls begin, if there is one, and then takes
// until finish receives.
func (k *kube) start(identity string, config Config, as *rest.Config, begin ...func()) *process {
	k.t.Helper()
	p := &process{
		t: k.t, log: &logBuffer{}, terms: make(chan *Term, 100), finish: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	p.Candidate, err = New(config, as, identity, slog.New(slog.NewTextHandler(p.log, nil)))
	observe.Must(k.t, err)
	ctx, stop := context.WithCancel(k.t.Context())
	p.stop = stop
	go func() {
		defer close(p.ended)
		err := p.Lead(ctx, func(term *Term) {
			for _, f := range begin {
				f()
			}
			p.terms <- term
			<-p.finish
		})
		if err != nil {
			k.t.Errorf("Lead of %s: %v", identity, err)
		}
	}()
	k.t.Cleanup(func() {
		stop()
		close(p.finish)
		await(k.t, p.ended, "the end of "+identity)
		if k.t.Failed() {
			k.t.Logf("the log of %s:\n%s", identity, p.log)
		}
	})
	return p
}

// await waits for a channel.
func await[T any](t *testing.T, channel <-chan T, what string) (received T) {
	t.Helper()
	select {
	case received = <-channel:
	case <-time.After(observe.Soon):
		t.Fatalf("no %s within %s", what, observe.Soon)
	}
	return received
}

// term waits until the process leads.
func (p *process) term() *Term {
	p.t.Helper()
	return await(p.t, p.terms, "term of "+p.identity)
}

// sees waits until the candidate knows who holds the Lease.
func (p *process) sees(want string) {
	p.t.Helper()
	observe.Eventually(p.t, func() error {
		if got, _ := p.Holder(); got != want {
			return fmt.Errorf("%s sees the holder %q, not %q", p.identity, got, want)
		}
		return nil
	})
}

// expectNoTerm fails if the process leads within some time.
func (p *process) expectNoTerm(within time.Duration) {
	p.t.Helper()
	select {
	case <-p.terms:
		p.t.Errorf("%s leads", p.identity)
	case <-time.After(within):
	}
}

func expectValid(t *testing.T, term *Term) {
	t.Helper()
	if err := context.Cause(term.Context()); err != nil || !term.Valid() {
		t.Errorf("a term is over: %v, valid: %t", err, term.Valid())
	}
}

// expectLost fails unless a term is over.
func expectLost(t *testing.T, term *Term) {
	t.Helper()
	if term.Context().Err() == nil || term.Valid() {
		t.Errorf("a term goes on: the error of its context is %v, valid: %t", term.Context().Err(), term.Valid())
	}
}

// logBuffer is what a candidate has logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
