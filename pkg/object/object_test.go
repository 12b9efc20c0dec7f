package object

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func mustNew(tb testing.TB, raw string) *Object {
	tb.Helper()
	o, err := New([]byte(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// checkObject compares New with the model, for any bytes.
func checkObject(t *testing.T, b []byte) {
	t.Helper()
	want := model(b)
	o, err := New(b)
	if err != nil {
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("error %v does not wrap ErrMalformed", err)
		}
		if want != nil {
			t.Fatalf("New(%q): %v", b, err)
		}
		return
	}
	if want == nil {
		return // no JSON, but it looks like an object: allowed, and no panic
	}
	want.HasAPIVersion, want.HasKind = false, false
	if diff := cmp.Diff(want, found(o)); diff != "" {
		t.Fatalf("New(%q): -model +found\n%s", b, diff)
	}
	var p Parser
	if stored, err := p.Parse(b); err != nil || !cmp.Equal(found(o), found(stored)) {
		t.Fatalf("Parse(%q): %v, -New +Parse\n%s", b, err, cmp.Diff(found(o), found(stored)))
	}
	if cap(o.Raw) != len(o.Raw) {
		t.Errorf("Raw has %d spare bytes", cap(o.Raw)-len(o.Raw))
	}
	// The cut is right not only by the model's rule, but in meaning.
	// (cmp.Diff takes time exponential in the depth.)
	if want, got := decodeAny(t, b, true), decodeAny(t, o.Raw, false); !reflect.DeepEqual(want, got) {
		t.Fatalf("New(%q): meaning of Raw differs:\nwant %v\ngot  %v", b, want, got)
	}
}

func decodeAny(t *testing.T, b []byte, cut bool) any {
	t.Helper()
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode %q: %v", b, err)
	}
	if metadata, ok := v["metadata"].(map[string]any); ok && cut {
		delete(metadata, "managedFields")
	}
	return v
}

func TestNew(t *testing.T) {
	for _, name := range []string{"pod.json", "configmap.json", "widget.json", "status.json", "bookmark.json", "podlist.json"} {
		t.Run(name, func(t *testing.T) { checkObject(t, []byte(read(t, name))) })
	}
	for name, raw := range odd() {
		t.Run(name, func(t *testing.T) {
			if model([]byte(raw)) == nil {
				t.Fatal("the model does not take it for JSON")
			}
			checkObject(t, []byte(raw))
		})
	}
}

func TestNewNotAnObject(t *testing.T) {
	for _, raw := range notObjects() {
		if o, err := New([]byte(raw)); !errors.Is(err, ErrMalformed) {
			t.Errorf("New(%q) = %v, %v", raw, o, err)
		}
	}
}

// What the model and the code could both get wrong.
func TestNewPod(t *testing.T) {
	raw := read(t, "pod.json")
	o := mustNew(t, raw)
	want := &modelObject{
		APIVersion: "v1", Kind: "Pod", Namespace: "team-a", Name: "web-7d4b9c6f5d-x2x9k",
		UID: "0b0c1f8e-6a55-4d19-9a8e-3b6f1f2a77aa", ResourceVersion: "123456", Manager: "kubelet",
		Owners: []types.UID{"5f9d6c1e-1111-4222-8333-444455556666"},
	}
	before, _, _ := strings.Cut(raw, `,"managedFields":`)
	_, after, _ := strings.Cut(raw, `},"spec":{"volumes"`)
	want.Raw = before + `},"spec":{"volumes"` + after
	if diff := cmp.Diff(want, found(o)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got, want := o.GroupVersionKind(), (schema.GroupVersionKind{Version: "v1", Kind: "Pod"}); got != want {
		t.Errorf("GVK %v", got)
	}
}

func TestNewKeepsNothingOfItsInput(t *testing.T) {
	raw := []byte(read(t, "pod.json"))
	o, err := New(raw)
	if err != nil {
		t.Fatal(err)
	}
	before := found(o)
	clear(raw)
	if diff := cmp.Diff(before, found(o)); diff != "" {
		t.Errorf("the object changed with its input:\n%s", diff)
	}
	identity := o.Identity
	clear(o.Raw) // an identity must not keep Raw alive
	if identity.Name != before.Name || identity.UID != before.UID || o.Owners[0] != before.Owners[0] {
		t.Error("the identity points into Raw")
	}
}

// A stored object of which nothing is cut is not copied. Only its Raw may change with the memory in which it was.
func TestParserSharesOnlyRaw(t *testing.T) {
	var p Parser
	buffer, parsed := make([]byte, 0, 64<<10), []*Object(nil)
	for _, name := range []string{"widget.json", "pod.json", "configmap.json"} {
		want := mustNew(t, read(t, name))
		want.Manager = "" // comes from managedFields, which Raw does not contain
		buffer = append(buffer[:0], want.Raw...)
		o, err := p.Parse(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if &o.Raw[0] != &buffer[0] || cap(o.Raw) != len(o.Raw) {
			t.Errorf("%s: Raw is a copy, or has spare bytes", name)
		}
		if diff := cmp.Diff(found(want), found(o)); diff != "" {
			t.Errorf("%s: -New +Parse\n%s", name, diff)
		}
		parsed = append(parsed, o)
	}
	clear(buffer)
	for _, o := range parsed {
		if strings.Contains(o.Key()+string(o.UID)+o.ResourceVersion+o.Manager+o.APIVersion()+o.Kind(), "\x00") {
			t.Errorf("the identity of %s points into the buffer", o.Key())
		}
	}
}

func TestMetadataAccessors(t *testing.T) {
	o := mustNew(t, read(t, "pod.json"))
	if got := o.GetLabels(); !cmp.Equal(got, map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d"}) {
		t.Errorf("labels %v", got)
	}
	if got := o.GetAnnotations()["note"]; got != `café ☃ "quoted"` {
		t.Errorf("annotation %q", got)
	}
	if got := o.GetCreationTimestamp(); !got.Equal(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}) {
		t.Errorf("creationTimestamp %v", got)
	}
	if got := o.GetFinalizers(); !slices.Equal(got, []string{"example.com/hold"}) {
		t.Errorf("finalizers %v", got)
	}
	if got := o.GetOwnerReferences(); len(got) != 1 || got[0].Kind != "ReplicaSet" || got[0].UID != o.Owners[0] {
		t.Errorf("ownerReferences %v", got)
	}
	if o.GetGenerateName() != "web-7d4b9c6f5d-" || o.GetGeneration() != 1 || o.GetSelfLink() != "" {
		t.Error("generateName, generation, selfLink")
	}
	if o.GetDeletionTimestamp() != nil || o.GetDeletionGracePeriodSeconds() != nil || o.GetManagedFields() != nil {
		t.Error("what is absent is not nil")
	}
	deleted := mustNew(t, `{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z","deletionGracePeriodSeconds":30}}`)
	if at := deleted.GetDeletionTimestamp(); at == nil || at.Year() != 2026 {
		t.Errorf("deletionTimestamp %v", at)
	}
	if s := deleted.GetDeletionGracePeriodSeconds(); s == nil || *s != 30 {
		t.Errorf("deletionGracePeriodSeconds %v", s)
	}
}

func TestMetadataAccessorsOnOddObjects(t *testing.T) {
	for name, raw := range odd() {
		t.Run(name, func(t *testing.T) { callAccessors(mustNew(t, raw)) })
	}
	callAccessors(&Object{})
	last := mustNew(
		t,
		`{"metadata":{"labels":{"a":"1"},"Labels":{"a":"3"}},"metadata":{"labels":{"a":"2"},"LABELS":{"a":"4"}}}`,
	)
	if got := last.GetLabels()["a"]; got != "2" {
		t.Errorf("label %q: the last of equal keys counts, and keys match exactly", got)
	}
}

// callAccessors calls all that must not panic, whatever the object holds.
func callAccessors(o *Object) {
	o.GetLabels()
	o.GetAnnotations()
	o.GetFinalizers()
	o.GetOwnerReferences()
	o.GetCreationTimestamp()
	o.GetDeletionTimestamp()
	o.GetDeletionGracePeriodSeconds()
	o.GetGeneration()
	o.GetGenerateName()
	o.GetSelfLink()
	o.GroupVersionKind()
	_ = o.APIVersion()
	o.DeepCopyObject()
}

func TestSettersChangeNothing(t *testing.T) {
	o := mustNew(t, read(t, "pod.json"))
	before := found(o)
	o.SetName("x")
	o.SetNamespace("x")
	o.SetGenerateName("x")
	o.SetUID("x")
	o.SetResourceVersion("x")
	o.SetGeneration(9)
	o.SetSelfLink("x")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetLabels(nil)
	o.SetAnnotations(nil)
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	o.SetManagedFields(nil)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Kind: "x"})
	if diff := cmp.Diff(before, found(o)); diff != "" {
		t.Error(diff)
	}
}

func TestDeepCopy(t *testing.T) {
	if o := mustNew(t, read(t, "pod.json")); o.DeepCopyObject() != o {
		t.Error("an immutable object was copied")
	}
}

func TestDecision(t *testing.T) {
	o := &Object{}
	for slot := range Slots {
		if _, known := o.Decision(slot); known {
			t.Fatalf("slot %d known", slot)
		}
		o.SetDecision(slot, slot%3 == 0)
	}
	for slot := range Slots {
		if belongs, known := o.Decision(slot); !known || belongs != (slot%3 == 0) {
			t.Errorf("slot %d: %v, %v", slot, belongs, known)
		}
	}
	o.SetDecision(3, false)
	if belongs, known := o.Decision(3); belongs || !known {
		t.Error("a later decision does not replace the first")
	}
	for _, slot := range []int{-1, Slots, 1000} {
		o.SetDecision(slot, true)
		if belongs, known := o.Decision(slot); belongs || known {
			t.Errorf("slot %d remembered", slot)
		}
	}
}

// The methods of an object may be called from any goroutine: run with -race.
func TestConcurrentUse(t *testing.T) {
	var group sync.WaitGroup
	o := mustNew(t, read(t, "pod.json"))
	for slot := range Slots {
		group.Go(func() {
			o.SetDecision(slot, slot%2 == 0)
			if _, err := o.Bytes(); err != nil {
				t.Error(err)
			}
			for other := range Slots {
				if belongs, known := o.Decision(other); known && belongs != (other%2 == 0) {
					t.Errorf("slot %d: %t", other, belongs)
				}
			}
		})
	}
	group.Wait()
	c := &Object{}
	c.InheritDecisions(o)
	for slot := range Slots {
		if belongs, known := c.Decision(slot); !known || belongs != (slot%2 == 0) {
			t.Errorf("slot %d is inherited as %t, known %t", slot, belongs, known)
		}
	}
}
