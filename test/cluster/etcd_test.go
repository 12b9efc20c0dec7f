package cluster

import (
	"errors"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func revision(t *testing.T, resourceVersion string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEtcd(t *testing.T) {
	c := ForTest(t)
	t.Run("history", func(t *testing.T) { testHistory(t, c) })
	t.Run("compact", func(t *testing.T) { testCompact(t, c) }) // the last: it ends the history
}

// History, read from etcd, is compared with what a watch of the API server said.
func testHistory(t *testing.T, c *Cluster) {
	ctx := t.Context()
	const prefix = "/registry/configmaps/history/"
	client := clientOf(t, c)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "history"}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if history, err := c.History(ctx, prefix, 1); err != nil || len(history) != 0 {
		t.Errorf("history of what never was: %v, %v", history, err)
	}
	maps := client.CoreV1().ConfigMaps("history")
	seen, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()

	// "one" is created twice; "two" stays. Changes of others lie between and behind.
	for _, step := range []func() error{
		func() error { return create(t, c, "one") },
		func() error { return create(t, c, "two") },
		func() error { return update(t, c, "one") },
		func() error { createConfigMap(t, c, "another"); return nil },
		func() error { return maps.Delete(ctx, "one", metav1.DeleteOptions{}) },
		func() error { return create(t, c, "one") },
		func() error { return update(t, c, "two") },
		func() error { createConfigMap(t, c, "last"); return nil },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want := fromWatch(t, seen, prefix, 6)
	got, err := c.History(ctx, prefix, 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, withoutValues); diff != "" {
		t.Errorf("history (-watch +etcd):\n%s", diff)
	}

	// The same, one by one, and then live.
	enough := errors.New("enough")
	var live []Revision
	err = c.WatchHistory(ctx, prefix, want[3].ModRevision, func(r Revision) error {
		live = append(live, r)
		switch len(live) {
		case 3:
			return update(t, c, "two")
		case 4:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	want[3].CreateRevision = 0 // a deletion whose creation was not read
	want = append(want[3:], fromWatch(t, seen, prefix, 1)...)
	want[3].CreateRevision = want[2].CreateRevision
	if diff := cmp.Diff(want, live, withoutValues); diff != "" {
		t.Errorf("watched history (-watch +etcd):\n%s", diff)
	}
}

// withoutValues leaves out what the watch does not have: what etcd stores.
var withoutValues = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Value" }, cmp.Ignore())

func create(t *testing.T, c *Cluster, name string) error {
	_, err := clientOf(t, c).CoreV1().ConfigMaps("history").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func update(t *testing.T, c *Cluster, name string) error {
	maps := clientOf(t, c).CoreV1().ConfigMaps("history")
	object, err := maps.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.Data = map[string]string{"changed": object.ResourceVersion}
	_, err = maps.Update(t.Context(), object, metav1.UpdateOptions{})
	return err
}

// fromWatch builds the history that n events of a watch show.
func fromWatch(t *testing.T, w watch.Interface, prefix string, n int) []Revision {
	t.Helper()
	var history []Revision
	created := map[string]int64{}
	for range n {
		event := <-w.ResultChan()
		object, err := meta.Accessor(event.Object)
		if err != nil {
			t.Fatal(err)
		}
		r := Revision{
			Key:         prefix + object.GetName(),
			ModRevision: revision(t, object.GetResourceVersion()),
			Deleted:     event.Type == watch.Deleted,
		}
		if event.Type == watch.Added {
			created[r.Key] = r.ModRevision
		}
		r.CreateRevision = created[r.Key]
		history = append(history, r)
	}
	return history
}

// A history is read to its end, also when it is so long that etcd sends it in
// many parts, and not further.
func TestLongHistory(t *testing.T) {
	c, err := newCluster(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if history, err := c.History(t.Context(), "", 1); err != nil || len(history) != 0 {
		t.Errorf("history of an empty store: %v, %v", history, err)
	}
	put := func(key string) {
		t.Helper()
		request := map[string]any{"key": []byte(key), "value": make([]byte, 4<<10)}
		if err := c.call(t.Context(), "/v3/kv/put", request, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	const n = 2500 // etcd sends 1000 revisions at a time
	var want []Revision
	for i := range int64(n) {
		put("/a/key")
		want = append(want, Revision{Key: "/a/key", ModRevision: i + 2, CreateRevision: 2})
	}
	put("/b/key")
	got, err := c.History(t.Context(), "/a/", 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, withoutValues); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// Events are the resource to see compaction with: the API server keeps no cache
// of them, so that it must ask etcd for their history.
func testCompact(t *testing.T, c *Cluster) {
	ctx := t.Context()
	events := clientOf(t, c).CoreV1().Events("default")
	var versions []string
	for _, name := range []string{"first", "second"} {
		event, err := events.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, event.ResourceVersion)
	}
	next := func() watch.Event {
		w, err := events.Watch(ctx, metav1.ListOptions{ResourceVersion: versions[0]})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		return <-w.ResultChan()
	}

	if event := next(); event.Type != watch.Added {
		t.Fatalf("before the compaction: %v %v, want the second event added", event.Type, event.Object)
	}
	createConfigMap(t, c, "later")
	if err := c.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	event := next()
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("after the compaction: %v %v, want 410 Expired", event.Type, event.Object)
	}
	if _, err := c.History(ctx, "/registry/events/", 1); !errors.Is(err, ErrCompacted) {
		t.Errorf("history after the compaction: %v, want ErrCompacted", err)
	}
}
