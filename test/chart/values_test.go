package chart

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The registry and its credentials can be set for all charts of a parent chart.
func TestGlobals(t *testing.T) {
	for repository, want := range map[string]string{
		"ghcr.io/deltabridge/deltabridge": "mirror:5000/deltabridge/deltabridge:v1",
		"localhost/a":                     "mirror:5000/a:v1",
		"registry:5000/a/b":               "mirror:5000/a/b:v1",
		"library/a":                       "mirror:5000/library/a:v1",
	} {
		spec := statefulSet(
			t,
			template(t, "--set", "image.tag=v1,global.imageRegistry=mirror:5000,image.repository="+repository,
				"--set", "global.imagePullSecrets={a},imagePullSecrets[0].name=b"),
		).Spec.Template.Spec
		if got := spec.Containers[0].Image; got != want {
			t.Errorf("%s: image %s, want %s", repository, got, want)
		}
		if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "b"}, {Name: "a"}}, spec.ImagePullSecrets); diff != "" {
			t.Errorf("pull secrets: %s", diff)
		}
	}
}

// A parent chart can enable and disable the chart, and pass its global values.
func TestSubchart(t *testing.T) {
	parent := t.TempDir()
	if err := os.CopyFS(parent+"/charts/deltabridge", os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	chart := "apiVersion: v2\nname: parent\nversion: 1.0.0\n" +
		"dependencies: [{name: deltabridge, version: \"*\", condition: deltabridge.enabled}]\n"
	if err := os.WriteFile(parent+"/Chart.yaml", []byte(chart), 0o600); err != nil {
		t.Fatal(err)
	}
	sinks := `deltabridge.config.sinks=[{"name": "a", "stdout": {}}]`
	on := helm(t, "template", "x", parent, "--set-json", sinks,
		"--set", "deltabridge.enabled=true,deltabridge.config.cluster=a,global.other=b,global.imageRegistry=mirror")
	if image := statefulSet(t, on).Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(image, "mirror/") {
		t.Errorf("image %s", image)
	}
	if off := helm(t, "template", "x", parent, "--set", "deltabridge.enabled=false"); strings.TrimSpace(off) != "" {
		t.Errorf("disabled:\n%s", off)
	}
}

// Each namespaced object is in the namespace that replaces the release's, and so is the subject of the bindings.
func TestNamespaceOverride(t *testing.T) {
	const release = "namespace-of-the-release"
	out := template(t, "--namespace", release,
		"--set", "namespaceOverride=other,prometheusRule.enabled=true,networkPolicy.enabled=true")
	for _, o := range objects(t, out) {
		if o.Namespace != "other" && !strings.HasPrefix(o.Kind, "ClusterRole") {
			t.Errorf("%s %s is in %q", o.Kind, o.Name, o.Namespace)
		}
	}
	if strings.Contains(out, release) {
		t.Errorf("the release's namespace is used:\n%s", out)
	}
}

// No label or annotation is rendered twice if several values name it, and the selector's labels cannot be changed.
func TestLabels(t *testing.T) {
	const same = "app\\.kubernetes\\.io/part-of=mine"
	out := template(t, "--set", "monitor.enabled=true,monitor.labels."+same+",commonLabels."+same+",podLabels."+same,
		"--set", "podLabels.app\\.kubernetes\\.io/name=mine,podAnnotations.a=b,commonAnnotations.a=c")
	for _, o := range objects(t, out) { // decoding fails for a key that is there twice
		if o.Labels["app.kubernetes.io/part-of"] != "mine" || o.Labels["app.kubernetes.io/name"] != "deltabridge" {
			t.Errorf("%s: labels %v", o.Kind, o.Labels)
		}
		var unique map[string]any
		if err := yaml.UnmarshalStrict([]byte(o.text), &unique); err != nil {
			t.Errorf("%s: %v", o.Kind, err)
		}
	}
	pod := statefulSet(t, out).Spec.Template
	if pod.Labels["app.kubernetes.io/name"] != "deltabridge" || pod.Annotations["a"] != "b" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
}
