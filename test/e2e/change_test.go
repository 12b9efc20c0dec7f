package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/scale"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// changeData is the payload "change" as a consumer reads it.
type changeData struct {
	Operation    string          `json:"operation"`
	Object       json.RawMessage `json:"object"`
	Old          json.RawMessage `json:"old"`
	Patch        json.RawMessage `json:"patch"`
	ChangedPaths []string        `json:"changedPaths"`
	Managers     []struct {
		Manager     string   `json:"manager"`
		Operation   string   `json:"operation"`
		Subresource string   `json:"subresource"`
		Time        string   `json:"time"`
		Paths       []string `json:"paths"`
	} `json:"managers"`
}

func changesOf(t *testing.T, events []received) (changes []changeData, of []received) {
	t.Helper()
	for _, r := range events {
		if !r.object() {
			continue
		}
		var c changeData
		if err := json.Unmarshal(r.data, &c); err != nil {
			t.Fatalf("%s: %v", r.data, err)
		}
		changes, of = append(changes, c), append(of, r)
	}
	return changes, of
}

// canonical is a document with sorted members and numbers as they are written.
func canonical(t *testing.T, doc []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

var boxes = schema.GroupVersionResource{Group: "change.example.com", Version: "v1", Resource: "boxes"}

// editor makes random edits of a Deployment and of a few custom resources of any form.
type editor struct {
	r         *rand.Rand
	cs        kubernetes.Interface
	boxes     dynamic.ResourceInterface
	namespace string
	last      map[string]string // resourceVersion by resource
	made      int
}

func newEditor(t *testing.T, cs kubernetes.Interface, api dynamic.Interface, namespace string) *editor {
	t.Helper()
	e := &editor{
		r:         rand.New(rand.NewPCG(3, 4)),
		cs:        cs,
		boxes:     api.Resource(boxes).Namespace(namespace),
		namespace: namespace,
		last:      map[string]string{},
	}
	d := deployment("web", 1)
	if _, err := cs.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		box := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": boxes.GroupVersion().String(),
				"kind":       "Box",
				"metadata":   map[string]any{"name": "box-" + itoa(n)},
			},
		}
		eventually(t, 20*time.Second, func() error {
			_, err := e.boxes.Create(t.Context(), box, metav1.CreateOptions{})
			return err
		})
	}
	return e
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

func (e *editor) value(depth int) any {
	leaves := []any{
		nil,
		true,
		"",
		"日本 \u2028 <&> \" \\ /~",
		int64(9007199254740993),
		int64(-1),
		0.1,
		1e300,
		map[string]any{},
		[]any{},
	}
	if depth == 0 || e.r.IntN(3) > 0 {
		return leaves[e.r.IntN(len(leaves))]
	}
	if e.r.IntN(2) == 0 {
		return map[string]any{"a": e.value(depth - 1), "x/y~z": e.value(depth - 1)}
	}
	return []any{map[string]any{"name": "p" + itoa(e.r.IntN(4)), "v": e.value(depth - 1)}, e.value(depth - 1)}
}

func (e *editor) editBox(t *testing.T) {
	t.Helper()
	name := "box-" + itoa(e.r.IntN(3))
	box, err := e.boxes.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, ok := box.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
	}
	items, _ := spec["items"].([]any)
	switch e.r.IntN(5) {
	case 0:
		spec["k"+itoa(e.r.IntN(5))] = e.value(3)
	case 1:
		delete(spec, "k"+itoa(e.r.IntN(5)))
	case 2:
		items = slices.Insert(items, e.r.IntN(len(items)+1), any(map[string]any{"name": "i" + itoa(e.made), "v": e.value(2)}))
	case 3:
		if len(items) > 0 {
			n := e.r.IntN(len(items))
			items = slices.Delete(items, n, n+1)
		}
	case 4:
		e.r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	}
	spec["items"], spec["made"] = items, int64(e.made)
	if items == nil {
		spec["items"] = []any{}
	}
	box.Object["spec"] = spec
	box, err = e.boxes.Update(t.Context(), box, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.last["boxes."+boxes.Group] = box.GetResourceVersion()
}

func (e *editor) editDeployment(t *testing.T) {
	t.Helper()
	api := e.cs.AppsV1().Deployments(e.namespace)
	d, err := api.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &d.Spec.Template.Spec
	c := &pod.Containers[e.r.IntN(len(pod.Containers))]
	switch e.r.IntN(5) {
	case 0:
		d.Spec.Replicas = new(e.r.Int32N(1000))
	case 1:
		c.Env = slices.Insert(c.Env, e.r.IntN(len(c.Env)+1), corev1.EnvVar{Name: "E" + itoa(e.made), Value: "é<>"})
	case 2:
		c.Env = c.Env[:len(c.Env)/2]
	case 3:
		pod.Containers = slices.Insert(
			pod.Containers,
			e.r.IntN(len(pod.Containers)+1),
			corev1.Container{Name: "c" + itoa(e.made), Image: "x:1"},
		)
		pod.Containers = pod.Containers[:min(4, len(pod.Containers))]
	case 4:
		pod.TerminationGracePeriodSeconds = new(9007199254740993 + e.r.Int64N(9))
	}
	d.Annotations = map[string]string{"example.com/made": itoa(e.made)}
	if d, err = api.Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.last["deployments.apps"] = d.ResourceVersion
}

func (e *editor) edit(t *testing.T) {
	t.Helper()
	e.made++
	if e.r.IntN(3) == 0 {
		e.editDeployment(t)
	} else {
		e.editBox(t)
	}
}

// arrived waits until the bridge has delivered the last edit of each resource.
func (e *editor) arrived(t *testing.T, b *bridge) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		for resource, rv := range e.last {
			want, err := strconv.ParseFloat(rv, 64)
			if err != nil {
				t.Fatal(err)
			}
			if at := b.seen(resource); at < want {
				return fmt.Errorf("%s is at %.0f of %.0f", resource, at, want)
			}
		}
		if waiting := b.metric("deltabridge_queue_events"); waiting > 0 {
			return fmt.Errorf("%.0f events wait", waiting)
		}
		return nil
	})
}

// TestPatchesAddUp: of a thousand random edits, some of which happen while the bridge is dead, each event's patch makes
// its object of its old state, which is the object of the event before.
func TestPatchesAddUp(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	api, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	definitions := cluster.Definitions(api)
	if _, err := definitions.Create(t.Context(), cluster.Definition(boxes, "Box"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := definitions.Delete(
			context.WithoutCancel(t.Context()),
			boxes.Resource+"."+boxes.Group,
			metav1.DeleteOptions{},
		); err != nil {
			t.Error(err)
		}
	})
	namespace := newNamespace(t, cs)
	e := newEditor(t, cs, api, namespace)
	config, dir := fmt.Sprintf(`
watch: [{resources: [deployments.apps, boxes.change.example.com], namespaces: [%s]}]
sinks:
  - name: audit
    payload: change
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, js.url()), t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	edits, lives := scale.Of(400, 1000), scale.Of(2, 5)
	for n := range edits {
		e.edit(t)
		switch n % (edits / lives) {
		case edits/lives - 5: // the last edits of each life are seen by the next one
			b.kill()
		case edits/lives - 1:
			b = startBridgeIn(t, dir, c.Kubeconfig(), config)
		}
	}
	b.waitReady()
	e.arrived(t, b)
	b.stop()

	changes, events := changesOf(t, js.read("E2E"))
	state, updates := map[string]string{}, 0
	for n, change := range changes {
		subject := events[n].subject()
		if change.Operation == "updated" {
			updates++
			patch, err := jsonpatch.DecodePatch(change.Patch)
			if err != nil {
				t.Fatal(err)
			}
			got, err := patch.Apply(change.Old)
			if err != nil {
				t.Fatalf("%s on %s: %v", change.Patch, change.Old, err)
			}
			if diff := cmp.Diff(canonical(t, change.Object), canonical(t, got)); diff != "" {
				t.Fatalf("%s on %s (-object +patched):\n%s", change.Patch, change.Old, diff)
			}
			if diff := cmp.Diff(state[subject], canonical(t, change.Old)); diff != "" {
				t.Fatalf("%s: old (-object of the event before +old):\n%s", events[n].id(), diff)
			}
		}
		state[subject] = canonical(t, change.Object)
	}
	t.Logf("%d updates of %d objects, over %d kills", updates, len(state), lives)
	if updates != edits {
		t.Errorf("%d updates arrived, %d were made", updates, edits)
	}
}

// TestManagersOfAChange: two managers change different fields with server-side apply, some while the bridge is dead,
// and each event names the right one.
func TestManagersOfAChange(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	if _, err := cs.AppsV1().
		Deployments(namespace).
		Create(t.Context(), deployment("shared", 1), metav1.CreateOptions{FieldManager: "founder"}); err != nil {
		t.Fatal(err)
	}
	config, dir := fmt.Sprintf(`
watch: [{resources: [deployments.apps], namespaces: [%s]}]
sinks:
  - name: audit
    payload: change
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, js.url()), t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	e := &editor{last: map[string]string{}}
	apply := func(manager, spec string) {
		body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"shared"},` + spec + `}`
		d, err := cs.AppsV1().
			Deployments(namespace).
			Patch(t.Context(), "shared", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager, Force: new(true)})
		if err != nil {
			t.Fatal(err)
		}
		e.last["deployments.apps"] = d.ResourceVersion
	}
	var want [][2]string
	for n := range 30 {
		if n == 10 {
			e.arrived(t, b)
			b.kill()
		}
		if n == 20 {
			b = startBridgeIn(t, dir, c.Kubeconfig(), config)
		}
		switch n % 3 {
		case 0:
			apply("images", fmt.Sprintf(`"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:%d"}]}}}`, n+2))
			want = append(want, [2]string{"images", "/spec/template/spec/containers/0/image"})
		case 1:
			apply("scaler", fmt.Sprintf(`"spec":{"replicas":%d}`, n+2))
			want = append(want, [2]string{"scaler", "/spec/replicas"})
		case 2:
			body := fmt.Sprintf(`{"status":{"observedGeneration":%d}}`, n)
			d, err := cs.AppsV1().
				Deployments(namespace).
				Patch(t.Context(), "shared", types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "controller"}, "status")
			if err != nil {
				t.Fatal(err)
			}
			e.last["deployments.apps"] = d.ResourceVersion
			want = append(want, [2]string{"controller", "/status/observedGeneration"})
		}
	}
	b.waitReady()
	e.arrived(t, b)
	b.stop()
	var got [][2]string
	changes, events := changesOf(t, js.read("E2E"))
	for n, change := range changes {
		if change.Operation != "updated" {
			continue
		}
		for _, m := range change.Managers {
			if at, err := time.Parse(time.RFC3339, m.Time); err != nil || time.Since(at) > 10*time.Minute {
				t.Errorf("%s: time %q", m.Manager, m.Time)
			}
			if apply := m.Manager != "controller"; apply != (m.Operation == "Apply") || apply == (m.Subresource == "status") {
				t.Errorf("%s: operation %q, subresource %q", m.Manager, m.Operation, m.Subresource)
			}
			for _, path := range m.Paths {
				got = append(got, [2]string{m.Manager, path})
			}
		}
		if len(change.Managers) != 1 {
			t.Errorf("%s of %v has %d managers", events[n].id(), change.ChangedPaths, len(change.Managers))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("managers and paths (-want +got):\n%s", diff)
	}
}
