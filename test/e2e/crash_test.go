package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// randomChanges creates, updates, deletes and re-creates objects of a few names, until it is stopped.
type randomChanges struct {
	stopped context.CancelFunc
	ended   chan struct{}
	made    atomic.Int64
}

// startChanges starts random changes of ConfigMaps, or of other resources of the core group that may be empty. What
// could not be done at the rate is done later.
func startChanges(
	t *testing.T,
	cs kubernetes.Interface,
	namespace string,
	names, perSecond int,
	resources ...string,
) *randomChanges {
	t.Helper()
	if len(resources) == 0 {
		resources = []string{"configmaps"}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &randomChanges{stopped: cancel, ended: make(chan struct{})}
	limiter := rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/4))
	// A change is not interrupted: nobody would know whether it happens.
	next := func() bool { return limiter.Wait(ctx) == nil }
	var group sync.WaitGroup
	workers := min(names, 1+perSecond/25) // each has its own objects, so that hardly any request fails
	for w := range workers {
		var own []string
		for n := w; n < names; n += workers {
			own = append(own, fmt.Sprintf("c-%d", n))
		}
		group.Go(func() { r.run(t.Context(), next, cs, namespace, own, resources) })
	}
	go func() {
		defer close(r.ended)
		group.Wait()
	}()
	t.Cleanup(r.stop)
	return r
}

func (r *randomChanges) run(
	ctx context.Context,
	next func() bool,
	cs kubernetes.Interface,
	namespace string,
	names, resources []string,
) {
	api := cs.CoreV1().RESTClient()
	payload := strings.Repeat("x", 600)
	exists := map[string]bool{} // by resource and name
	for n := 0; next(); n++ {
		name, resource := names[rand.IntN(len(names))], resources[rand.IntN(len(resources))]
		var request *rest.Request
		key := resource + "/" + name
		remains := true
		switch {
		case !exists[key]:
			request = api.Post()
		case rand.IntN(5) == 0:
			request, remains = api.Delete().Name(name), false
		default:
			request = api.Put().Name(name)
		}
		body := fmt.Appendf(nil, `{"metadata":{"name":%q,"annotations":{"n":"%d","payload":%q}}}`, name, n, payload)
		err := request.Namespace(namespace).Resource(resource).
			SetHeader("Content-Type", "application/json").SetHeader("Accept", runtime.ContentTypeProtobuf). // costs less
			Body(body).Do(ctx).Error()
		switch {
		case err == nil:
			r.made.Add(1)
			exists[key] = remains
		case apierrors.IsAlreadyExists(err): // an earlier attempt was not answered
			exists[key] = true
		case apierrors.IsNotFound(err):
			exists[key] = false
		}
	}
}

// await waits until more changes were made.
func (r *randomChanges) await(t *testing.T, more int64) {
	t.Helper()
	until := r.made.Load() + more
	eventually(t, time.Minute, func() error {
		if made := r.made.Load(); made < until {
			return fmt.Errorf("%d of %d changes", made, until)
		}
		return nil
	})
}

func (r *randomChanges) stop() {
	r.stopped()
	<-r.ended
}

// upTo waits until the bridge has taken in and delivered everything of etcd's history so far, and gives that.
func upTo(t *testing.T, b *bridge, c *cluster.Cluster, namespace string) []change {
	t.Helper()
	truth := configMapHistory(t, c, namespace)
	eventually(t, 90*time.Second, func() error { return b.reached(truth) })
	return truth
}

// TestKilledAtAnyMoment: the bridge is killed many times under random changes, some of which happen while it is
// down, within the API server's history.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "killed-" + namespace
	config, dir := toBoth(namespace, js.url(), k.Addr(), topic), t.TempDir()
	first := startBridgeIn(t, dir, c.Kubeconfig(), config)
	first.waitReady() // what happened before the first list is history
	changes := startChanges(t, cs, namespace, 60, scale.Of(40, 75))
	first.kill()
	kills := scale.Of(8, 30)
	for range kills {
		b := startBridgeIn(t, dir, c.Kubeconfig(), config)
		pause(t, time.Duration(rand.IntN(1500))*time.Millisecond)
		b.kill()
		pause(t, time.Duration(rand.IntN(300))*time.Millisecond)
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	pause(t, 12*time.Second) // so that most of what it sends is in its checkpoint
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	changes.stop()
	truth := upTo(t, b, c, namespace)
	b.stop()
	t.Logf("%d kills, %d changes", kills+2, len(truth))
	prefix := "configmaps/" + namespace + "/"
	events := js.read("E2E")
	judge(t, "JetStream", truth, prefix, events)
	once(t, "JetStream", events)
	records := readKafka(t, k.Addr(), topic)
	judge(t, "Kafka", truth, prefix, records...)
	once(t, "Kafka", records...)
	for _, r := range events {
		if r.attributes["type"] == "dev.deltabridge.gap" {
			t.Errorf("a gap where the history was there: %s", r.data)
		}
	}
}

// TestDownForLongerThanTheHistory: while the bridge is down objects change, go and come again, and the API server is
// restarted, so that it refuses to continue.
func TestDownForLongerThanTheHistory(t *testing.T) {
	t.Parallel()
	c, js, k := cluster.ForTest(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "down-" + namespace
	config, dir := toBoth(namespace, js.url(), k.Addr(), topic), t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	api := cs.CoreV1().ConfigMaps(namespace)
	for n := range 300 {
		if err := oneLife(t.Context(), cs, namespace, fmt.Sprintf("c-%d", n), 0, false); err != nil {
			t.Fatal(err)
		}
	}
	before := upTo(t, b, c, namespace)
	b.waitCommitted(before, "jetstream", "kafka")
	b.kill()

	for n := range 300 {
		name := fmt.Sprintf("c-%d", n)
		var err error
		switch n % 3 {
		case 1: // changed
			err = oneLife(t.Context(), cs, namespace, name, 2, false)
		case 2: // deleted, and every second one created again
			err = api.Delete(t.Context(), name, metav1.DeleteOptions{})
			if n%2 == 0 && err == nil {
				err = oneLife(t.Context(), cs, namespace, name, 0, false)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := len(js.read("E2E"))
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	truth := upTo(t, b, c, namespace)
	b.stop()

	prefix := "configmaps/" + namespace + "/"
	events := js.read("E2E")
	judgeFinal(t, "JetStream", truth, prefix, events)
	records := readKafka(t, k.Addr(), topic)
	judgeFinal(t, "Kafka", truth, prefix, records...)
	once(t, "Kafka", records...)
	once(t, "JetStream", events)
	gapsInPlace(t, events)
	changed := map[string]bool{}
	for _, c := range truth[len(before):] {
		changed[c.subject] = true
	}
	gaps, deletions := 0, 0
	for _, r := range events[held:] {
		switch {
		case r.attributes["type"] == "dev.deltabridge.gap":
			gaps++
			t.Logf("gap event: %s", r.data)
		case r.object() && !changed[r.subject()]:
			t.Errorf("%s was sent, and has not changed", r.subject())
		case r.attributes["finalstateunknown"] == "true":
			deletions++
			if len(r.data) < 2000 {
				t.Errorf("the deletion of %s does not carry its last known state: %s", r.subject(), r.data)
			}
		}
	}
	if gaps != 1 || deletions != 100 {
		t.Errorf("%d gaps and %d deletions that were missed, want 1 and 100", gaps, deletions)
	}
}

// waitCommitted waits until these sinks have settled all of the changes, and the checkpoint has that.
func (b *bridge) waitCommitted(truth []change, sinks ...string) {
	b.t.Helper()
	last := map[string]float64{}
	for _, c := range truth {
		resource, _, _ := strings.Cut(c.subject, "/")
		last[resource] = max(last[resource], float64(revision(b.t, c.rv)))
	}
	eventually(b.t, time.Minute, func() error {
		for resource, rv := range last {
			if at := b.seen(resource); at < rv {
				return fmt.Errorf("%s is at %.0f of %.0f", resource, at, rv)
			}
		}
		var waiting error
		for _, sink := range sinks {
			waiting = errors.Join(waiting, b.settled(sink))
		}
		return waiting
	})
	b.waitCommits()
}

// waitCommits waits until the checkpoint has what is settled now: until two more commits, because the first one may have
// begun before. If there are none, there was nothing to commit. That is seen by looking often, and not by the clock: it
// goes on if this machine stands still.
func (b *bridge) waitCommits() {
	b.t.Helper()
	commits := func() float64 { return b.metric("deltabridge_checkpoint_commits_total") }
	before, looks := commits(), 0
	eventually(b.t, time.Minute, func() error {
		if looks++; commits() < before+2 && looks < 30 {
			return errors.New("the next commit is due")
		}
		return nil
	})
}

// TestTermination: SIGTERM under load ends the bridge in time, and the next one repeats nothing.
func TestTermination(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "terminated-" + namespace
	config, dir := toBoth(namespace, js.url(), k.Addr(), topic), t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady() // what happened before the first list is history
	changes := startChanges(t, cs, namespace, 60, scale.Of(50, 100))
	for range 3 {
		pause(t, time.Second)
		b.stop()
		b = startBridgeIn(t, dir, c.Kubeconfig(), config)
		b.waitReady()
	}
	changes.stop()
	truth := upTo(t, b, c, namespace)
	b.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "JetStream", truth, prefix, js.read("E2E"))
	judge(t, "Kafka", truth, prefix, readKafka(t, k.Addr(), topic)...) // no repeats at all
}

// TestAChangedConfiguration: a sink that is added gets everything that exists, and the others nothing again. A
// sink whose filter changed is told of what enters and what leaves.
func TestAChangedConfiguration(t *testing.T) {
	t.Parallel()
	c, old, added := sharedCluster(t), startJetStream(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	sink := func(name, url, filter string) string {
		return fmt.Sprintf(
			"  - name: %s\n    filters: [{when: %q}]\n    nats: {url: %q, stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}\n",
			name,
			filter,
			url,
		)
	}
	head := fmt.Sprintf("\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)
	for n, name := range []string{"both", "only-old", "only-new"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": itoa(n)}}
		if _, err := cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), head+sink("old", old.url(), "object.metadata.name in ['both', 'only-old']"))
	b.waitReady()
	eventually(t, 20*time.Second, func() error { return b.reached(configMapHistory(t, c, namespace)) })
	b.stop()
	b = startBridgeIn(
		t,
		dir,
		c.Kubeconfig(),
		head+sink("old", old.url(), "object.metadata.name in ['both', 'only-new']")+sink("added", added.url(), "true"),
	)
	b.waitReady()
	eventually(t, 20*time.Second, func() error { return b.reached(configMapHistory(t, c, namespace)) })
	b.stop()
	// Back within the duplicate window: what comes again is not taken for a repetition.
	b = startBridgeIn(
		t,
		dir,
		c.Kubeconfig(),
		head+sink("old", old.url(), "object.metadata.name in ['both', 'only-old']")+sink("added", added.url(), "true"),
	)
	b.waitReady()
	eventually(t, 20*time.Second, func() error { return b.reached(configMapHistory(t, c, namespace)) })
	b.stop()
	told := func(js *jetStream) (lines []string) {
		for _, r := range js.read("E2E") {
			if r.object() {
				lines = append(lines, r.attributes["operation"]+" "+r.attributes["name"]+" "+r.attributes["leftfilter"])
			}
		}
		return lines
	}
	if got, want := strings.Join(
		told(old),
		", ",
	), "added both , added only-old , deleted only-old true, added only-new , added only-old , deleted only-new true"; got != want {
		t.Errorf("the old sink was told %q, want %q", got, want)
	}
	if got, want := strings.Join(told(added), ", "), "added both , added only-old , added only-new "; got != want {
		t.Errorf("the new sink was told %q, want %q", got, want)
	}
}
