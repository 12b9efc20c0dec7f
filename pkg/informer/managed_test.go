package informer_test

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A list and a watch bring the managedFields if they were asked for, and not otherwise.
func TestManagedFieldsAreKeptOnRequest(t *testing.T) {
	const item = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"9","managedFields":[{"manager":"ci"}]}}`
	for _, keep := range []bool{false, true} {
		api := newScriptedAPI(
			t,
			apiStep{
				code: 200,
				body: `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[` + item + `]}`,
			},
			apiStep{code: 200, body: `{"type":"MODIFIED","object":` + item + "}\n"},
		)
		lw := informer.ListWatch(api.client(), informer.Source{Resource: configMaps})
		lw.ManagedFields = keep
		list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "8"})
		if err != nil {
			t.Fatal(err)
		}
		seen, ok := (<-w.ResultChan()).Object.(*object.Object)
		w.Stop()
		if !ok {
			t.Fatal("the watch brought nothing")
		}
		for from, o := range map[string]*object.Object{"list": list.(*object.List).Items[0], "watch": seen} {
			if got := string(o.ManagedFieldsJSON()); (got == `[{"manager":"ci"}]`) != keep {
				t.Errorf("keep %v, %s: %q", keep, from, got)
			}
		}
	}
}
