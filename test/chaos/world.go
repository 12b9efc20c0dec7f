package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/natsserver"
	"github.com/deltabridge/deltabridge/test/poll"
)

// pollInterval is the time between two looks at something.
const pollInterval = 50 * time.Millisecond

const (
	teamLabel = "team"
	zoneLabel = "zone" // of namespaces
	stampNote = "chaos.example.com/stamp"
	padNote   = "chaos.example.com/pad"
)

// world is what runs share, one after the other: a control plane, a nats-server and perhaps a Kafka broker. Its errors
// are not violations: they end the test.
type world struct {
	t       testing.TB
	lane    int
	binary  string   // the bridge
	env     []string // of the bridge
	keepDir string   // where the files of failed runs go
	quiet   time.Duration
	cluster *cluster.Cluster
	api     dynamic.Interface
	nats    *server.Options
	js      jetstream.JetStream
	kafka   *kafka.Broker // nil: none
	// slots are proxies to the broker, for a destination each: a Kafka broker advertises one address for each listener.
	slots []*sinktest.Proxy
	runs  int

	mu    sync.Mutex
	revs  map[string][]*Rev // by namespace
	reach int64             // the last revision that was seen
	objs  map[string]*Rev   // the current state, by key
}

// newWorld starts everything, and ends it with the test.
func newWorld(t testing.TB, lane int, binary string, env []string) *world {
	t.Helper()
	w := &world{
		t:      t,
		lane:   lane,
		binary: binary,
		env:    env,
		quiet:  settleQuiet,
		revs:   map[string][]*Rev{},
		objs:   map[string]*Rev{},
	}
	w.cluster = cluster.ForTest(t, func(o *cluster.Options) {
		for _, r := range Resources() {
			if !strings.Contains(r, ".") && !cached(r) {
				o.APIServerFlags = append(o.APIServerFlags, "--watch-cache-sizes="+r+"#0")
			}
		}
	})
	w.startNATS()
	config := rest.CopyConfig(w.cluster.RESTConfig())
	config.QPS, config.Timeout = -1, 3*time.Second
	var err error
	if w.api, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if err := w.define(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.cluster.WatchHistory(ctx, "/registry/", 1, w.learn) }() // received by the cleanup
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the history can't be read: %v", err)
		}
	})
	return w
}

func cached(resource string) bool { return slices.Contains(Cached(), resource) }

func (w *world) startNATS() {
	w.t.Helper()
	w.nats = &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: w.t.TempDir(), NoLog: true, NoSigs: true,
	}
	_, stop := natsserver.Start(w.t, w.nats)
	w.t.Cleanup(stop)
	w.js = natsserver.Connect(w.t, natsserver.ClientURL(w.nats))
}

// kafkaSlots is how many topics a run can have.
const kafkaSlots = 8

// startKafka starts a broker that can be reached through a proxy for each slot.
func (w *world) startKafka() {
	w.t.Helper()
	var addrs []string
	for range kafkaSlots {
		p := sinktest.NewProxy(w.t, "")
		w.slots, addrs = append(w.slots, p), append(addrs, p.Addr())
	}
	w.kafka = kafka.NewForTestBehind(w.t, addrs)
	for n, addr := range w.kafka.Behind() {
		w.slots[n].SetTarget(addr)
	}
}

// define makes the custom resource.
func (w *world) define() error {
	ctx, gvr := w.t.Context(), resourceOf(boxes)
	_, err := cluster.Definitions(w.api).Create(ctx, cluster.Definition(gvr, "Box"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return poll.Until(ctx, pollInterval, 2*time.Minute, func() error {
		_, err := w.api.Resource(gvr).List(ctx, metav1.ListOptions{})
		return err
	})
}

func resourceOf(name string) schema.GroupVersionResource {
	resource, group, custom := strings.Cut(name, ".")
	if !custom {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// learn takes a revision of etcd: /registry/[group/]resource/namespace/name.
func (w *world) learn(r cluster.Revision) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reach = r.ModRevision
	parts := strings.Split(strings.TrimPrefix(r.Key, "/registry/"), "/")
	if len(parts) < 3 {
		return nil
	}
	resource, namespace, name := parts[len(parts)-3], parts[len(parts)-2], parts[len(parts)-1]
	if resource == "boxes" {
		resource = boxes
	}
	if w.revs[namespace] == nil { // of no run
		return nil
	}
	rev := &Rev{
		RV:        r.ModRevision,
		Resource:  resource,
		Namespace: namespace[len(namespace)-1:],
		Name:      name,
		Deleted:   r.Deleted,
		At:        time.Now(),
	}
	if before := w.objs[r.Key]; r.Deleted && before != nil {
		rev.UID, rev.Team = before.UID, before.Team
		delete(w.objs, r.Key)
	} else {
		object, err := decode(r.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Key, err)
		}
		rev.UID, rev.Team, rev.Stamp = string(
			object.GetUID(),
		), object.GetLabels()[teamLabel], object.GetAnnotations()[stampNote]
		w.objs[r.Key] = rev
	}
	w.revs[namespace] = append(w.revs[namespace], rev)
	return nil
}

// decode reads what the API server stores: protobuf of its own types, JSON of custom ones.
func decode(value []byte) (metav1.Object, error) {
	if len(value) > 0 && value[0] == '{' {
		u := &unstructured.Unstructured{}
		return u, u.UnmarshalJSON(value)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		return nil, err
	}
	return meta.Accessor(object)
}

// history gives what etcd committed in the namespaces of a run up to now, and the revision of now.
func (w *world) history(ctx context.Context, names map[string]string) (*History, int64, error) {
	now, err := w.cluster.Revision(ctx)
	if err != nil {
		return nil, 0, err
	}
	var revs []*Rev
	err = poll.Until(ctx, pollInterval, 2*time.Minute, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.reach < now {
			return fmt.Errorf("the history is read up to %d of %d", w.reach, now)
		}
		revs = nil
		for _, namespace := range names {
			for _, r := range w.revs[namespace] {
				revs = append(revs, new(*r)) // the links are of this history
			}
		}
		return nil
	})
	sortRevs(revs)
	return NewHistory(revs), now, err
}

// begin makes the namespaces of a run: real names by letter.
func (w *world) begin(ctx context.Context) (run string, names map[string]string, err error) {
	w.runs++
	run = fmt.Sprintf("r%d-%d", w.lane, w.runs)
	names = map[string]string{}
	for _, letter := range namespaces() {
		name := run + "-" + letter
		names[letter] = name
		w.mu.Lock()
		w.revs[name] = []*Rev{}
		w.mu.Unlock()
		ns := &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
		}
		err := poll.Until(ctx, pollInterval, 2*time.Minute, func() error {
			_, err := w.api.Resource(resourceOf("namespaces")).Create(ctx, ns, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				err = nil
			}
			return err
		})
		if err != nil {
			return "", nil, err
		}
	}
	return run, names, nil
}

// end removes what a run has left.
func (w *world) end(ctx context.Context, names map[string]string) {
	for _, namespace := range names {
		for _, r := range Resources() {
			_ = w.api.Resource(resourceOf(r)).
				Namespace(namespace).
				DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			// it would only take room
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, namespace := range names {
		delete(w.revs, namespace)
	}
}

// kubeconfig writes a kubeconfig that reaches the API server at addr.
func (w *world) kubeconfig(dir, addr string) (string, error) {
	text, err := os.ReadFile(w.cluster.Kubeconfig())
	if err != nil {
		return "", err
	}
	direct := strings.TrimPrefix(w.cluster.APIServerURL(), "https://")
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), direct, addr)), 0o600)
}
