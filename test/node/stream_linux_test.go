package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	loadNamespace = "load"
	stream        = "K8S"
)

// event is an event of the stream, as a client without knowledge of the bridge reads it.
type event struct {
	kind      string // CloudEvents type
	subject   string // RESOURCE/NAMESPACE/NAME
	operation string
	revision  int64
}

// received is an event, and what the broker knows about it.
type received struct {
	event
	id   string
	left bool      // the object still exists, but no longer passes the filter
	at   time.Time // when the broker received it
}

// jetStream connects to the broker's Pod.
func (n *node) jetStream(t *testing.T) (js jetstream.JetStream, closeConn func()) {
	t.Helper()
	pod, err := n.client.CoreV1().Pods("nats").Get(t.Context(), "nats-0", metav1.GetOptions{})
	must(t, err)
	conn, err := natsgo.Connect("nats://" + pod.Status.PodIP + ":4222")
	must(t, err)
	js, err = jetstream.New(conn)
	must(t, err)
	return js, conn.Close
}

// read reads what the stream has received since the last call.
func (n *node) read(t *testing.T) {
	t.Helper()
	n.events = append(n.events, n.readFrom(t, stream, len(n.events))...)
}

// readFrom reads a stream, except the first events.
func (n *node) readFrom(t *testing.T, name string, first int) (all []received) {
	t.Helper()
	js, closeConn := n.jetStream(t)
	defer closeConn()
	s, err := js.Stream(t.Context(), name)
	must(t, err)
	state := s.CachedInfo().State
	if state.Msgs != state.LastSeq {
		t.Fatalf("the stream %s has %d messages of %d", name, state.Msgs, state.LastSeq)
	}
	consumer, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(first) + 1, HeadersOnly: true,
	})
	must(t, err)
	for want := int(state.LastSeq) - first; len(all) < want; { //nolint:gosec // thousands
		batch, err := consumer.Fetch(min(500, want-len(all)), jetstream.FetchMaxWait(10*time.Second))
		must(t, err)
		for m := range batch.Messages() {
			h := m.Headers()
			e := event{kind: h.Get("ce-type"), subject: h.Get("ce-subject")}
			_, e.operation, _ = strings.Cut(e.kind, ".object.")                   // control events have none
			e.revision, _ = strconv.ParseInt(h.Get("ce-resourceversion"), 10, 64) // control events have none
			meta, err := m.Metadata()
			must(t, err)
			all = append(all, received{e, h.Get("ce-id"), h.Get("ce-leftfilter") == "true", meta.Timestamp})
		}
		must(t, batch.Error())
	}
	return all
}

// judge compares the stream with etcd: it waits until every revision of the load has arrived, and then requires that
// each arrived once and, for each object, in order, and that no event reports a gap.
func (n *node) judge(t *testing.T) {
	t.Helper()
	within(t, 3*time.Minute, func() error {
		n.read(t)
		want := n.wanted(t, n.since)
		missing, wrong := compare(want, n.events, n.since)
		if len(wrong) > 0 {
			first := strings.Join(wrong[:min(len(wrong), 20)], "\n")
			t.Fatalf("%d of %d events are wrong:\n%s", len(wrong), len(n.events), first)
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d commits are missing", missing, len(want))
		}
		t.Logf("%d commits in etcd since the installation: none missing, none repeated, all in order", len(want))
		return nil
	})
}

// wanted returns the event of each revision of the load in etcd, from a revision on.
func (n *node) wanted(t *testing.T, since int64) map[int64]event {
	t.Helper()
	want := map[int64]event{}
	for _, resource := range []string{"configmaps", "serviceaccounts"} {
		history, err := n.History(t.Context(), "/registry/"+resource+"/"+loadNamespace+"/", since)
		must(t, err)
		for _, r := range history {
			operation := "updated"
			switch {
			case r.Deleted:
				operation = "deleted"
			case r.CreateRevision == r.ModRevision:
				operation = "added"
			}
			subject := resource + "/" + loadNamespace + r.Key[strings.LastIndex(r.Key, "/"):]
			want[r.ModRevision] = event{"dev.deltabridge.object." + operation, subject, operation, r.ModRevision}
		}
	}
	return want
}

// compare returns how many of the wanted events are missing, and what is wrong with those that arrived.
func compare(want map[int64]event, got []received, since int64) (missing int, wrong []string) {
	seen, last := map[int64]bool{}, map[string]int64{}
	for _, e := range got {
		switch w := want[e.revision]; {
		case e.kind == "dev.deltabridge.gap":
			wrong = append(wrong, fmt.Sprintf("gap event: %+v", e))
		case e.operation == "restated": // by a resync: no change
			continue
		case !strings.Contains(e.subject, "/"+loadNamespace+"/") || e.revision < since:
		case w != e.event:
			wrong = append(wrong, fmt.Sprintf("%+v, etcd has %+v", e, w))
		case seen[e.revision]:
			wrong = append(wrong, fmt.Sprintf("%+v is repeated", e))
		case e.revision < last[e.subject]:
			wrong = append(wrong, fmt.Sprintf("%+v came after %d", e, last[e.subject]))
		}
		seen[e.revision], last[e.subject] = true, e.revision
	}
	for revision := range want {
		if !seen[revision] {
			missing++
		}
	}
	return missing, wrong
}

// underLoad creates, changes and deletes objects, and changes those that stay, 50 writes per second, while do runs, and
// then judges the stream. It returns and logs the longest time in which the broker received nothing.
func (n *node) underLoad(t *testing.T, resource string, do func()) (longest time.Duration) {
	t.Helper()
	before, last := len(n.events), time.Now()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.write(ctx, resource) }()
	func() {
		defer stop() // also if do ends the test
		do()
	}()
	must(t, <-ended)
	n.judge(t)
	for _, e := range n.events[before:] {
		if e.at.After(last) && strings.Contains(e.subject, "/"+loadNamespace+"/") {
			longest, last = max(longest, e.at.Sub(last)), e.at
		}
	}
	t.Logf("%5.2f s  was the longest pause of delivery, %.2f s that of the writes", longest.Seconds(), n.written.Seconds())
	return longest
}

// write writes until ctx ends.
func (n *node) write(ctx context.Context, resource string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	n.written = 0
	for last := time.Now(); ; {
		n.objects++
		name := fmt.Sprintf("load-%d", n.objects)
		steps := []func(context.Context, string, string) error{n.create, n.patch, n.patch, n.remove}
		if n.kept > 0 {
			steps = append(steps, func(ctx context.Context, resource, _ string) error {
				return n.patch(ctx, resource, keptName(n.objects%n.kept))
			})
		}
		for _, step := range steps {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			// A write is not interrupted, as its result would not be known.
			if err := step(context.WithoutCancel(ctx), resource, name); err != nil {
				return errors.Join(fmt.Errorf("load on %s", resource), err)
			}
			n.written, last = max(n.written, time.Since(last)), time.Now()
		}
	}
}

// keptName returns the name of an object that stays.
func keptName(i int) string { return fmt.Sprintf("kept-%d", i) }

func (n *node) create(ctx context.Context, resource, name string) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("v1")
	object.SetKind(map[string]string{"configmaps": "ConfigMap", "serviceaccounts": "ServiceAccount"}[resource])
	object.SetName(name)
	_, err := n.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(loadNamespace).
		Create(ctx, object, metav1.CreateOptions{})
	return err
}

func (n *node) patch(ctx context.Context, resource, name string) error {
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"at":"%d"}}}`, time.Now().UnixNano())
	_, err := n.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(loadNamespace).
		Patch(ctx, name, types.MergePatchType, label, metav1.PatchOptions{})
	return err
}

func (n *node) remove(ctx context.Context, resource, name string) error {
	return n.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(loadNamespace).
		Delete(ctx, name, metav1.DeleteOptions{})
}
