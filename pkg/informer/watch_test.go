package informer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// This file tests single informers against the real API server.

// quick is a back-off for tests that wait for retries.
var quick = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1, Steps: 1000, Cap: time.Second}

// slow is a back-off that no test could wait for.
var slow = wait.Backoff{Duration: time.Hour, Factor: 1, Steps: 1000, Cap: time.Hour}

// runInformer runs an informer of ConfigMaps in a namespace until the end of the test.
func runInformer(
	t *testing.T,
	config *rest.Config,
	namespace string,
	edit func(*informer.Config),
	handlers ...cache.ResourceEventHandler,
) (i *informer.Informer, stop func()) {
	t.Helper()
	return runWithBackoff(t, quick, config, namespace, edit, handlers...)
}

func runWithBackoff(
	t *testing.T,
	backoff wait.Backoff,
	config *rest.Config,
	namespace string,
	edit func(*informer.Config),
	handlers ...cache.ResourceEventHandler,
) (i *informer.Informer, stop func()) {
	t.Helper()
	client, err := informer.NewClient(config)
	observe.Must(t, err)
	c := informer.Config{
		Source:    informer.Source{Resource: configMaps, Namespace: namespace},
		ListWatch: informer.ListWatch(client, informer.Source{Resource: configMaps, Namespace: namespace}),
	}
	if edit != nil {
		edit(&c)
	}
	i = informer.New(c)
	i.SetBackoff(backoff)
	for _, h := range handlers {
		i.AddEventHandler(h)
	}
	stop = runUntil(t, i.Run, client.(*rest.RESTClient).Client)
	t.Cleanup(stop)
	return i, stop
}

func waitSynced(t *testing.T, i *informer.Informer) {
	t.Helper()
	observe.Eventually(t, func() error {
		if !i.HasSynced() {
			return fmt.Errorf("not synced: %+v", i.Status())
		}
		return nil
	})
}

// labelled is a ListWatch of ConfigMaps with selectors.
func labelled(t *testing.T, namespace, labels, fields string) *informer.ListerWatcher {
	t.Helper()
	client, err := informer.NewClient(cluster.Shared(t).RESTConfig())
	observe.Must(t, err)
	return informer.ListWatch(client, informer.Source{
		Resource: configMaps, Namespace: namespace, LabelSelector: labels, FieldSelector: fields,
	})
}

// A handler receives every revision that etcd committed, in order.
func TestHandlersSeeEveryRevision(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	namespace := k.namespace()
	k.create(namespace, "before-1")
	k.create(namespace, "before-2")
	seen := &observe.Record{}
	i, _ := runInformer(t, c.RESTConfig(), namespace, nil, seen)
	waitSynced(t, i)

	const workers, each = 4, 12
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for n := range each {
				if err := oneLife(t.Context(), k, namespace, fmt.Sprintf("w%d-%d", worker, n), n%2 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	k.create(namespace, "last")
	seen.WaitFor(t, "add last")

	revisions, err := c.History(t.Context(), "/registry/configmaps/"+namespace+"/", 1)
	observe.Must(t, err)
	var want, got []string
	for _, r := range revisions {
		want = append(
			want,
			fmt.Sprintf("%s@%d deleted=%t", r.Key[strings.LastIndex(r.Key, "/")+1:], r.ModRevision, r.Deleted),
		)
	}
	for _, c := range seen.All() {
		if c.Verb != "synced" {
			got = append(got, fmt.Sprintf("%s@%s deleted=%t", c.Name, c.RV, c.Verb == "delete"))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// oneLife creates, changes and perhaps deletes an object.
func oneLife(ctx context.Context, k *kube, namespace, name string, deleted bool) error {
	api := k.CoreV1().ConfigMaps(namespace)
	cm, err := api.Create(ctx, configMap(name, nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	cm.Data = map[string]string{"k": "v"}
	if _, err := api.Update(ctx, cm, metav1.UpdateOptions{}); err != nil || !deleted {
		return err
	}
	return api.Delete(ctx, name, metav1.DeleteOptions{})
}

// An object that leaves what the API server selects comes as a deletion that can't be told from a real one.
func TestSelectors(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	namespace := k.namespace()
	byLabel, byField := &observe.Record{}, &observe.Record{}
	runInformer(
		t,
		c.RESTConfig(),
		namespace,
		func(c *informer.Config) { c.ListWatch = labelled(t, namespace, "app=x", "") },
		byLabel,
	)
	runInformer(
		t,
		c.RESTConfig(),
		namespace,
		func(c *informer.Config) { c.ListWatch = labelled(t, namespace, "", "metadata.name=one") },
		byField,
	)
	byLabel.WaitFor(t, "synced")
	byField.WaitFor(t, "synced")

	api := k.CoreV1().ConfigMaps(namespace)
	x := map[string]string{"app": "x"}
	cm, err := api.Create(t.Context(), configMap("one", x), metav1.CreateOptions{})
	observe.Must(t, err)
	var left *corev1.ConfigMap
	for _, labels := range []map[string]string{nil, x} {
		cm.Labels = labels
		cm, err = api.Update(t.Context(), cm, metav1.UpdateOptions{})
		observe.Must(t, err)
		if labels == nil {
			left = cm
		}
	}
	k.delete(namespace, "one")
	_, err = api.Create(t.Context(), configMap("two", x), metav1.CreateOptions{})
	observe.Must(t, err)
	byLabel.WaitFor(t, "add two")
	k.create(namespace, "other")
	byField.WaitFor(t, "delete one")

	observe.CheckLog(
		t,
		"by label",
		[]string{"synced", "add one", "delete one", "add one", "delete one", "add two"},
		byLabel.Lines(),
	)
	observe.CheckLog(
		t,
		"by field",
		[]string{"synced", "add one", "update one", "update one", "delete one"},
		byField.Lines(),
	)
	leave := byLabel.All()[2]
	if leave.RV != left.ResourceVersion || leave.UID != string(left.UID) || leave.Unseen ||
		!strings.Contains(leave.Raw, `"app":"x"`) {
		t.Errorf(
			"the leave is at %s, unseen %t, of %s; the update was at %s",
			leave.RV,
			leave.Unseen,
			leave.Raw,
			left.ResourceVersion,
		)
	}
}

func TestBlockedHandler(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	namespace := k.namespace()
	g, free := observe.NewGate(), &observe.Record{}
	blocked, stopBlocked := runInformer(t, c.RESTConfig(), namespace, nil, g)
	other, stopOther := runInformer(t, c.RESTConfig(), namespace, nil, free)
	waitSynced(t, blocked)
	waitSynced(t, other)
	const objects = 20
	for n := range objects {
		k.create(namespace, fmt.Sprintf("c%02d", n))
	}
	g.WaitBlocked(t)
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		blocked.Handlers()
	}()
	free.WaitFor(t, fmt.Sprintf("add c%02d", objects-1)) // the other one goes on

	if calls, status, index := g.Calls.Load(), blocked.Status(), len(
		blocked.Objects(),
	); calls != 1 || status.Objects > 1 || index > 1 ||
		!status.Synced {
		t.Errorf("%d calls, %d objects, %d in the index; status %+v", calls, status.Objects, index, status)
	}
	select {
	case <-listed:
		t.Error("Handlers did not wait for the change that is being handed over")
	default:
	}
	stopOther()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stopBlocked()
	}()
	select {
	case <-ended:
		t.Error("Run ended while a handler is being called")
	case <-listed:
		t.Error("Handlers did not wait")
	default:
	}
	close(g.Open)
	<-ended
	<-listed
}

// begun is a ListWatch that says when a request begins.
type begun struct {
	cache.ListerWatcherWithContext
	requests chan string
}

func (b *begun) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	b.requests <- "list"
	return b.ListerWatcherWithContext.ListWithContext(ctx, o)
}

func (b *begun) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	b.requests <- "watch"
	return b.ListerWatcherWithContext.WatchWithContext(ctx, o)
}

// proxied is the shared cluster through a proxy.
func proxied(t *testing.T) (*sinktest.Proxy, *rest.Config) {
	t.Helper()
	config := cluster.Shared(t).RESTConfig()
	p := sinktest.NewProxy(t, strings.TrimPrefix(config.Host, "https://"))
	config.Host = "https://" + p.Addr()
	// A transport of its own: others share one by their configuration.
	config.Dial = nil
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return rt })
	return p, config
}

// Run ends at once although the API server does not answer, on a connection that stands and while one is being made.
func TestShutdownWhileARequestHangs(t *testing.T) {
	cluster.Shared(t)
	for _, noWatchList := range []bool{true, false} {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprintf("list %t connected %t", noWatchList, connected), func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				t.Run("run", func(t *testing.T) {
					p, config := proxied(t)
					client, err := informer.NewClient(config)
					observe.Must(t, err)
					if connected {
						observe.Must(t, client.Get().AbsPath("/version").Do(t.Context()).Error())
					}
					p.Freeze()
					lw := &begun{
						informer.ListWatch(client, informer.Source{Resource: configMaps, Namespace: "default"}),
						make(chan string, 10),
					}
					i := informer.New(
						informer.Config{
							Source:      informer.Source{Resource: configMaps, Namespace: "default"},
							ListWatch:   lw,
							NoWatchList: noWatchList,
						},
					)
					stop := runUntil(t, i.Run, client.(*rest.RESTClient).Client)
					if got := <-lw.requests; (got == "list") != noWatchList {
						t.Errorf("the first request is a %s", got)
					}
					start := time.Now()
					stop()
					if took := time.Since(start); took > time.Minute {
						t.Errorf("ended after %s", took)
					}
					if status := i.Status(); status.Synced || status.Errors > 0 || status.LastError != "" {
						t.Errorf("status %+v", status)
					}
				})
				if err := goleak.Find(before); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Watches that RBAC forbids where lists are allowed: that is said once, the resource is polled, and handlers see what
// changed.
func TestWatchForbidden(t *testing.T) {
	k := newKube(t)
	namespace := k.namespace()
	config := restricted(
		t,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
	)
	log, seen := &observe.LogBuffer{}, &observe.Record{}
	i, _ := runInformer(
		t,
		config,
		namespace,
		func(c *informer.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) },
		seen,
	)
	waitSynced(t, i)
	observe.Eventually(t, func() error {
		if s := i.Status(); s.Errors < 4 || s.Relists < 2 {
			return fmt.Errorf("%d errors, %d re-lists", s.Errors, s.Relists)
		}
		return nil
	})
	if s := i.Status(); !s.Forbidden || !strings.HasPrefix(s.LastError, "watch: ") {
		t.Errorf("status: %+v", s)
	}
	k.create(namespace, "one")
	seen.WaitFor(t, "add one")
	lines := slices.DeleteFunc(
		strings.Split(strings.TrimSpace(log.String()), "\n"),
		func(line string) bool { return strings.Contains(line, "listed again") },
	)
	if len(lines) != 1 || !strings.Contains(lines[0], "request failed") {
		t.Errorf("log:\n%s", log)
	}
}

// restricted gives the configuration of somebody who may do what the rules say.
func restricted(t *testing.T, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	path, err := cluster.Shared(t).RestrictedKubeconfig(t.Context(), rules)
	observe.Must(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	observe.Must(t, err)
	return config
}

// litter puts documents that are not events into watches of ConfigMaps, in front of as many events as it is told.
type litter struct {
	http.RoundTripper
	next atomic.Int64
}

func (l *litter) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "true" && strings.HasSuffix(r.URL.Path, "/configmaps") {
		response.Body = &litteredBody{ReadCloser: response.Body, litter: l, atStart: true}
	}
	return response, err
}

type litteredBody struct {
	io.ReadCloser
	litter  *litter
	atStart bool // of a document
	buffer  bytes.Buffer
}

func (b *litteredBody) Read(p []byte) (int, error) {
	if b.buffer.Len() > 0 {
		return b.buffer.Read(p)
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.atStart && b.litter.next.Add(-1) >= 0 {
		b.buffer.WriteString("<html>\n")
		b.buffer.Write(p[:n])
		b.atStart = p[n-1] == '\n'
		return b.buffer.Read(p)
	}
	if n > 0 {
		b.atStart = p[n-1] == '\n'
	}
	return n, err
}

// A document that is not an event is asked for again; if it stays, the handlers are given a gap, and then what changed.
func TestMalformedDocumentIsAGap(t *testing.T) {
	k := newKube(t)
	namespace := k.namespace()
	config := cluster.Shared(t).RESTConfig()
	l := &litter{}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { l.RoundTripper = rt; return l })
	seen := &observe.Record{}
	i, _ := runInformer(t, config, namespace, nil, seen)
	waitSynced(t, i)
	k.create(namespace, "one")
	seen.WaitFor(t, "add one")
	l.next.Store(1)
	k.create(namespace, "two")
	seen.WaitFor(t, "add two")
	l.next.Store(2)
	k.create(namespace, "three")
	seen.WaitFor(t, "add three")
	observe.CheckLog(t, "changes", []string{"synced", "add one", "add two", "gap", "add three"}, seen.Lines())
	changes := seen.All()
	if gap := changes[3]; !strings.HasPrefix(gap.RV, changes[2].RV+"..") || gap.RV < changes[2].RV+".."+changes[4].RV {
		t.Errorf("gap %s after a change at %s, before one at %s", gap.RV, changes[2].RV, changes[4].RV)
	}
	if s := i.Status(); s.Errors != 3 || s.Relists != 1 || s.LastError != "" {
		t.Errorf("status %+v", s)
	}
}

// It stops the API server of all tests for a while.
func TestShutdownWhileTheAPIServerIsAway(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	namespace := k.namespace()
	observe.Must(t, c.StopAPIServer(t.Context()))
	defer func() { observe.Must(t, c.StartAPIServer(t.Context())) }()
	for _, noWatchList := range []bool{true, false} {
		i, stop := runWithBackoff(t, slow, c.RESTConfig(), namespace, func(c *informer.Config) {
			c.NoWatchList = noWatchList
		})
		observe.Eventually(t, func() error {
			if s := i.Status(); s.Errors == 0 {
				return errors.New("no request has failed")
			}
			return nil
		})
		start := time.Now()
		stop()
		if took := time.Since(start); took > time.Minute {
			t.Errorf("ended after %s", took)
		}
	}
}
