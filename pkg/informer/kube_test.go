package informer_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/cluster"
)

// This file is what the tests against the real API server share.

// soon is how long a test waits for what should happen at once or within seconds. It is long for a machine that does
// much else at the same time.
const soon = 30 * time.Second

// eventually waits until check returns no error.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.NewTimer(soon)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %s: %v", soon, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// change is one call of a handler.
type change struct {
	verb      string // add, update, delete, synced, gap
	namespace string
	name      string
	uid       string
	rv        string
	initial   bool
	unseen    bool
	raw       string
}

// String leaves out what differs from run to run.
func (c change) String() string {
	s := c.verb
	if c.name != "" {
		s += " " + c.name
	}
	if c.initial {
		s += " initially"
	}
	if c.unseen {
		s += " unseen"
	}
	return s
}

// record is a handler that writes down what it is told. It may be read at any time.
type record struct {
	mu      sync.Mutex
	changes []change
}

func (r *record) note(verb string, obj any, edit func(*change)) {
	c := change{verb: verb}
	if o, ok := obj.(*object.Object); ok {
		c.namespace, c.name, c.uid, c.rv, c.unseen, c.raw = o.Namespace, o.Name, string(o.UID), o.ResourceVersion, o.FinalStateUnknown, string(o.Raw)
	}
	if edit != nil {
		edit(&c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

func (r *record) OnAdd(obj any, initial bool) {
	r.note("add", obj, func(c *change) { c.initial = initial })
}
func (r *record) OnUpdate(_, obj any) { r.note("update", obj, nil) }
func (r *record) OnDelete(obj any)    { r.note("delete", obj, nil) }
func (r *record) OnLeave(last, now *object.Object) {
	r.note("leave", last, func(c *change) { c.rv = now.ResourceVersion })
}

func (r *record) OnSynced(rv string, _ int) {
	r.note("synced", nil, func(c *change) { c.rv = rv })
}

func (r *record) OnGap(from, to, _ string) {
	r.note("gap", nil, func(c *change) { c.rv = from + ".." + to })
}

func (r *record) all() []change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// lines describes the changes, without those of other objects where names are given.
func (r *record) lines(names ...string) []string {
	lines := []string{}
	for _, c := range r.all() {
		if len(names) == 0 || slices.Contains(names, c.name) {
			lines = append(lines, c.String())
		}
	}
	return lines
}

func (r *record) count(line string) (n int) {
	for _, l := range r.lines() {
		if l == line {
			n++
		}
	}
	return n
}

// waitFor waits until a line is there.
func (r *record) waitFor(t *testing.T, line string) {
	t.Helper()
	eventually(t, func() error {
		if r.count(line) == 0 {
			return fmt.Errorf("no %q among %q", line, r.lines())
		}
		return nil
	})
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// runUntil runs a part until the returned function is called, which waits for its end.
func runUntil(t *testing.T, run func(context.Context) error, httpClient *http.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceFunc(func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(soon):
			t.Errorf("did not end within %s", soon)
		}
		httpClient.CloseIdleConnections()
	})
}

// kube is an administrator.
type kube struct {
	*kubernetes.Clientset
	t *testing.T
}

func newKube(t *testing.T) *kube {
	t.Helper()
	config := cluster.Shared(t).RESTConfig()
	typed, err := kubernetes.NewForConfig(config)
	must(t, err)
	return &kube{typed, t}
}

// namespace makes a new one.
func (k *kube) namespace() string {
	k.t.Helper()
	ns, err := k.CoreV1().Namespaces().Create(k.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "informer-"}}, metav1.CreateOptions{})
	must(k.t, err)
	return ns.Name
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func (k *kube) create(namespace, name string) {
	k.t.Helper()
	_, err := k.CoreV1().ConfigMaps(namespace).Create(k.t.Context(), configMap(name, nil), metav1.CreateOptions{})
	must(k.t, err)
}

func (k *kube) delete(namespace, name string) {
	k.t.Helper()
	must(k.t, k.CoreV1().ConfigMaps(namespace).Delete(k.t.Context(), name, metav1.DeleteOptions{}))
}
