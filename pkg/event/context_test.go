package event

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
)

var testContext = Context{
	Owner:           Owner{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d1"},
	NamespaceLabels: `kubernetes.io/metadata.name=shop,team=a`,
	InvolvedLabels:  "app=web,empty=",
}

func TestContextAttributes(t *testing.T) {
	plain := attributes(encode(t, &Encoder{Cluster: "prod"}, Event{Type: Updated, Resource: pods, Object: podAt(t, "17")}))
	want := map[string]string{
		"owner": "Deployment.apps/web", "owneruid": "d1",
		"namespacelabels": "kubernetes.io/metadata.name=shop,team=a", "involvedlabels": "app=web,empty=",
	}
	maps.Copy(want, plain)
	m := encode(
		t,
		&Encoder{Cluster: "prod"},
		Event{Type: Updated, Resource: pods, Object: podAt(t, "17"), Context: &testContext},
	)
	if diff := cmp.Diff(want, attributes(m)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if m.Size() <= int64(len(m.Data))+messageOverhead+int64(len(testContext.NamespaceLabels)) {
		t.Errorf("the context does not count: %d bytes", m.Size())
	}
	core := Owner{APIVersion: "v1", Kind: "Node", Name: "n1"}
	if got := core.String(); got != "Node/n1" {
		t.Error(got)
	}
}

// An attribute has room for so many labels; which is said, and what is there is whole.
func TestManyLabels(t *testing.T) {
	var all []string
	for n := range 300 {
		all = append(all, fmt.Sprintf("label-%03d=value", n))
	}
	text := strings.Join(all, ",")
	got := labelsAttribute(text)
	kept, cut := strings.CutSuffix(got, moreLabels)
	if !cut || len(got) > maxLabels || len(got) < maxLabels-20 || !strings.HasPrefix(text, kept+",") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if set, err := labels.ConvertSelectorToLabelsMap(kept); err != nil || len(set) < 100 {
		t.Errorf("%v: %d labels", err, len(set))
	}
	for _, short := range []string{"", "a=b", text[:maxLabels]} {
		if got := labelsAttribute(short); got != short {
			t.Errorf("%d bytes became %d", len(short), len(got))
		}
	}
	if got := labelsAttribute(strings.Repeat("x", 3*maxLabels)); got != moreLabels {
		t.Error(got)
	}
}
