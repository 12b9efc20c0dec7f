package object

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/scale"
)

type modelList struct {
	APIVersion, Kind string
	ResourceVersion  string
	Items            []*modelObject
}

// modelOfList is nil if b is no JSON object. Items that name neither kind nor apiVersion have the list's type.
func modelOfList(b []byte) *modelList {
	top := modelMembers(b)
	if top == nil {
		return nil
	}
	l := &modelList{
		APIVersion: top.text("apiVersion"), Kind: top.text("kind"),
		ResourceVersion: modelMembers(top["metadata"]).text("resourceVersion"),
	}
	kind, ok := strings.CutSuffix(l.Kind, "List")
	if !ok {
		kind = ""
	}
	for _, raw := range top.array("items") {
		item := model(raw)
		if item == nil {
			continue
		}
		var members []string
		if !item.HasKind && !item.HasAPIVersion {
			item.Kind, item.APIVersion = kind, l.APIVersion
			if kind != "" {
				members = append(members, `"kind":`+quote(kind))
			}
			if l.APIVersion != "" {
				members = append(members, `"apiVersion":`+quote(l.APIVersion))
			}
		}
		if len(members) > 0 {
			if string(trim([]byte(item.Raw[1:]))) != "}" {
				members = append(members, "")
			}
			item.Raw = "{" + strings.Join(members, ",") + item.Raw[1:]
		}
		item.HasAPIVersion, item.HasKind = false, false
		l.Items = append(l.Items, item)
	}
	return l
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// checkList compares the decoding of a list with the model, for any bytes.
func checkList(t *testing.T, b []byte) {
	t.Helper()
	want := modelOfList(b)
	l := &List{}
	if err := l.decode(b); err != nil {
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("error %v does not wrap ErrMalformed", err)
		}
		if want != nil {
			t.Fatalf("decode(%q): %v", b, err)
		}
		return
	}
	if want == nil {
		return
	}
	got := &modelList{APIVersion: l.APIVersion, Kind: l.Kind, ResourceVersion: l.ResourceVersion}
	for _, o := range l.Items {
		got.Items = append(got.Items, found(o))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("decode(%q): -model +found\n%s", b, diff)
	}
}

func oddLists() map[string]string {
	return map[string]string{
		"empty":                  `{}`,
		"no items":               `{"kind":"PodList","apiVersion":"v1","items":[]}`,
		"null items":             `{"kind":"PodList","apiVersion":"v1","items":null,"metadata":null}`,
		"items are an object":    `{"kind":"PodList","apiVersion":"v1","items":{"a":1}}`,
		"items are a string":     `{"kind":"PodList","apiVersion":"v1","items":"[{}]"}`,
		"odd items":              `{"kind":"PodList","apiVersion":"v1","items":[null,5,"x",[{}],{"metadata":{"name":"a"}},true,{},{ }]}`,
		"items first":            `{"items":[{"metadata":{"name":"a"}},{"kind":"X"}],"metadata":{"resourceVersion":"5"},"kind":"PodList","apiVersion":"v1"}`,
		"kind last":              `{"apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"kind":"PodList"}`,
		"kind twice":             `{"kind":"AList","apiVersion":"v1","items":[{}],"kind":"BList"}`,
		"items twice":            `{"kind":"AList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"items":[{"metadata":{"name":"b"}}]}`,
		"items twice, last null": `{"kind":"AList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"items":null}`,
		"a mixed list":           `{"kind":"List","apiVersion":"v1","items":[{"kind":"A"},{"apiVersion":"g/v1"},{}]}`,
		"not a list":             `{"kind":"Allowed","apiVersion":"v1","items":[{}]}`,
		"odd metadata":           `{"kind":"AList","metadata":{"resourceVersion":7,"continue":5,"remainingItemCount":"x"},"items":[{}]}`,
		"metadata twice":         `{"kind":"AList","metadata":{"resourceVersion":"1"},"metadata":{},"items":[{}]}`,
		"kind needs quoting":     `{"kind":"A\"<\u00e9List","apiVersion":"v\\1","items":[{"metadata":{}}]}`,
		"item kinds are odd":     `{"kind":"AList","apiVersion":"v1","items":[{"kind":null},{"kind":5,"apiVersion":""},{"k\u0069nd":"Z"}]}`,
		"pretty":                 "{\n \"kind\": \"AList\",\n \"apiVersion\": \"v1\",\n \"items\": [\n  {\n   \"metadata\": {\n    \"managedFields\": [ 1 ],\n    \"name\": \"a\"\n   }\n  },\n  {\n  }\n ]\n}\n",
	}
}

func TestList(t *testing.T) {
	for _, name := range []string{"podlist.json", "widgetlist.json", "pod.json"} {
		t.Run(name, func(t *testing.T) { checkList(t, []byte(read(t, name))) })
	}
	for name, raw := range oddLists() {
		t.Run(name, func(t *testing.T) {
			if modelOfList([]byte(raw)) == nil {
				t.Fatal("the model does not take it for JSON")
			}
			checkList(t, []byte(raw))
		})
	}
}

// A part of a list must never be taken for all of it.
func TestListCutShort(t *testing.T) {
	body := read(t, "podlist.json")
	for n := 0; n < len(body); n += scale.Of(5, 1) {
		if err := (&List{}).decode([]byte(body[:n])); !errors.Is(err, ErrMalformed) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(body), err)
		}
	}
	for _, raw := range notObjects() {
		if err := (&List{}).decode([]byte(raw)); !errors.Is(err, ErrMalformed) {
			t.Errorf("decode(%q): %v", raw, err)
		}
	}
}

// LIST and WATCH must give the same payload for the same state.
func TestListItemsEqualWatchObjects(t *testing.T) {
	l := &List{}
	if err := l.decode([]byte(read(t, "podlist.json"))); err != nil {
		t.Fatal(err)
	}
	pod := mustNew(t, read(t, "pod.json"))
	if len(l.Items) != 2 || l.Continue != "abc" || l.RemainingItemCount == nil || *l.RemainingItemCount != 7 {
		t.Fatalf("%+v", l)
	}
	for _, item := range l.Items {
		if diff := cmp.Diff(found(pod), found(item)); diff != "" {
			t.Errorf("-watch +list\n%s", diff)
		}
		if item.Identity != pod.Identity {
			t.Error("identities differ")
		}
	}
}

func TestListSharesNothing(t *testing.T) {
	body := []byte(read(t, "podlist.json"))
	l := &List{}
	if err := l.decode(body); err != nil {
		t.Fatal(err)
	}
	want := found(l.Items[0])
	c := l.DeepCopyObject().(*List)
	c.Items[0], c.ResourceVersion = l.Items[1], "6"
	clear(body)
	clear(l.Items[1].Raw)
	if diff := cmp.Diff(want, found(l.Items[0])); diff != "" {
		t.Error(diff)
	}
	if l.ResourceVersion != "5000" {
		t.Errorf("the list changed with its copy: %+v", l.ListMeta)
	}
}

func TestCodec(t *testing.T) {
	decode := codec{}.Decode
	status := []byte(read(t, "status.json"))
	for _, into := range []any{&List{}, &Object{}, nil} {
		var obj any
		var err error
		switch into := into.(type) {
		case *List:
			obj, _, err = decode(status, nil, into)
		case *Object:
			obj, _, err = decode(status, nil, into)
		default:
			obj, _, err = decode(status, nil, nil)
		}
		if s, ok := obj.(*metav1.Status); !ok || err != nil || s.Code != 410 || s.Reason != metav1.StatusReasonExpired {
			t.Errorf("into %T: %#v, %v", into, obj, err)
		}
	}
	// Every member of the wrong type, and the message is still there.
	odd := []byte(`{"kind":"Status","apiVersion":"v1","code":"410","details":5,"message":"m","status":"Failure"}`)
	if obj, _, err := decode(odd, nil, nil); err != nil || obj.(*metav1.Status).Message != "m" {
		t.Errorf("%#v, %v", obj, err)
	}
	// A custom resource may be called so.
	own := []byte(`{"kind":"Status","apiVersion":"example.com/v1","metadata":{"name":"x"}}`)
	if obj, gvk, err := decode(own, nil, nil); err != nil || obj.(*Object).Name != "x" || gvk.Group != "example.com" {
		t.Errorf("%#v, %v, %v", obj, gvk, err)
	}
	// Nor is one a list because it has items.
	allow := []byte(`{"kind":"AllowList","apiVersion":"example.com/v1","items":[{}],"metadata":{"name":"x"}}`)
	if obj, _, err := decode(allow, nil, nil); err != nil || obj.(*Object).Name != "x" {
		t.Errorf("%#v, %v", obj, err)
	}
	into := &Object{}
	if obj, _, err := decode(
		[]byte(read(t, "pod.json")),
		nil,
		into,
	); err != nil || obj != any(into) ||
		into.Kind() != "Pod" {
		t.Errorf("%#v, %v", obj, err)
	}
	resources := &metav1.APIResourceList{}
	if _, _, err := decode(
		[]byte(`{"kind":"APIResourceList","groupVersion":"v1"}`),
		nil,
		resources,
	); err != nil ||
		resources.GroupVersion != "v1" {
		t.Errorf("%#v, %v", resources, err)
	}
	for _, raw := range notObjects() {
		if obj, _, err := decode([]byte(raw), nil, nil); err == nil {
			t.Errorf("decode(%q) = %v", raw, obj)
		}
	}
}
