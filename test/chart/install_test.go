package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/scale"
)

const namespace = "streams"

// kube is a real API server, with a namespace in which Pods have to meet the restricted Pod Security Standard.
type kube struct {
	*cluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
}

func startKube(t *testing.T) *kube {
	t.Helper()
	k := &kube{Cluster: cluster.ForTest(t)}
	var err error
	if k.client, err = kubernetes.NewForConfig(k.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if k.dynamic, err = dynamic.NewForConfig(k.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{namespace, "payments", "orders", "monitoring"} {
		labels := map[string]string{}
		for _, mode := range []string{"enforce", "warn"} {
			labels["pod-security.kubernetes.io/"+mode] = "restricted"
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := k.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, keys := range secretKeys() {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{}}
		for _, key := range keys {
			secret.StringData[key] = "secret"
		}
		if _, err := k.client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// define installs a definition of a custom resource that takes everything, and waits until it is served.
func (k *kube) define(t *testing.T, group, version, kind, plural string) {
	t.Helper()
	resource := schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
	definition := cluster.Definition(resource, kind)
	if _, err := cluster.Definitions(k.dynamic).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // discovery can be later than the resource
		_, lists, err := k.client.Discovery().ServerGroupsAndResources()
		if err == nil && !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
			return l.GroupVersion == group+"/"+version &&
				slices.ContainsFunc(l.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
		}) {
			err = fmt.Errorf("%s.%s is not discovered", plural, group)
		}
		return err
	})
	eventually(t, func() error {
		_, err := k.dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// helm runs helm against the API server and returns what it prints and what it warns of.
func (k *kube) helm(t *testing.T, args ...string) (out, warnings string) {
	t.Helper()
	out, warnings, err := command(t, tools.helm, append(args, "--kubeconfig", k.Kubeconfig(), "--namespace", namespace)...)
	if err != nil {
		t.Fatal(err)
	}
	return out, warnings
}

// Each of the example values can be installed, upgraded and uninstalled: the API server takes all objects, and would
// admit the Pods, under the restricted Pod Security Standard.
func TestInstall(t *testing.T) {
	k := startKube(t)
	for _, kind := range []string{"PodMonitor", "ServiceMonitor", "PrometheusRule"} {
		k.define(t, "monitoring.coreos.com", "v1", kind, strings.ToLower(kind)+"s")
	}
	t.Run("default rights", k.grantsWhatIsServed)
	all := examples(t)
	all["audit"] = append(all["audit"], "--set", "service.auditClusterIP=10.0.0.50") // in the range of this API server
	some := []string{"audit", "default", "everything"}                               // with all kinds of resources
	for _, name := range scale.Of(some, slices.Sorted(maps.Keys(all))) {
		t.Run(name, func(t *testing.T) {
			k.lifeOfARelease(t, all[name])
		})
	}
	t.Run("from a volume to a log and back", k.moves)
	t.Run("not restricted", func(t *testing.T) {
		_, warnings := k.helm(t, "install", "deltabridge", chartDir, "--values", minimal, "--set", "securityContext=null")
		if !strings.Contains(warnings, "would violate PodSecurity") {
			t.Errorf("no warning, so there is no admission: %q", warnings)
		}
		pod := k.podOf(t)
		if err := k.admits(t, pod); !apierrors.IsForbidden(err) {
			t.Errorf("a Pod without a security context is admitted: %v", err)
		}
		k.helm(t, "uninstall", "deltabridge")
	})
}

func (k *kube) lifeOfARelease(t *testing.T, values []string) {
	t.Helper()
	install := func(verb string, args ...string) {
		t.Helper()
		_, warnings := k.helm(t, slices.Concat([]string{verb, "deltabridge", chartDir}, values, args)...)
		if warnings != "" {
			t.Errorf("helm %s: %s", verb, warnings)
		}
	}
	install("install")
	if err := k.admits(t, k.podOf(t)); err != nil {
		t.Error(err)
	}
	test := k.testPod(t)
	if err := k.admits(t, &corev1.PodTemplateSpec{ObjectMeta: test.ObjectMeta, Spec: test.Spec}); err != nil {
		t.Error(err)
	}

	const config = "checksum/config"
	first := k.podOf(t).Annotations[config]
	install("upgrade", "--set", "config.cluster=renamed")
	if second := k.podOf(t).Annotations[config]; second == first {
		t.Error("a key that cannot change at run time does not replace the Pod")
	}
	manifest, _ := k.helm(t, "get", "manifest", "deltabridge")
	if left := k.existing(t, manifest); left < 6 {
		t.Errorf("only %d objects are there", left)
	}
	k.helm(t, "uninstall", "deltabridge")
	if left := k.existing(t, manifest); left != 0 {
		t.Errorf("%d objects are left behind", left)
	}
}

// testPod is the Pod that `helm test` runs.
func (k *kube) testPod(t *testing.T) *corev1.Pod {
	t.Helper()
	hooks, _ := k.helm(t, "get", "hooks", "deltabridge")
	pod := &corev1.Pod{}
	hook := objects(t, hooks)[0]
	hook.decode(t, pod)
	return pod
}

// podOf is the template of the release's StatefulSet or Deployment, as the API server has it, with what the controller
// adds.
func (k *kube) podOf(t *testing.T) *corev1.PodTemplateSpec {
	t.Helper()
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=deltabridge"}
	sets, err := k.client.AppsV1().StatefulSets(namespace).List(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	deployments, err := k.client.AppsV1().Deployments(namespace).List(t.Context(), ours)
	if err != nil || len(sets.Items)+len(deployments.Items) != 1 {
		t.Fatalf("%d StatefulSets, %d Deployments, %v", len(sets.Items), len(deployments.Items), err)
	}
	if len(sets.Items) == 0 {
		return &deployments.Items[0].Spec.Template
	}
	pod := &sets.Items[0].Spec.Template
	for _, claim := range sets.Items[0].Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-0"},
		}})
	}
	return pod
}

// admits asks whether the API server would take a Pod.
func (k *kube) admits(t *testing.T, template *corev1.PodTemplateSpec) error {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Name = "deltabridge-0"
	_, err := k.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}

// existing counts the objects of a manifest that are there.
func (k *kube) existing(t *testing.T, manifest string) int {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(k.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	count := 0
	for _, o := range objects(t, manifest) {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(o.text), &u.Object); err != nil {
			t.Fatal(err)
		}
		mapping, err := mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if err != nil {
			t.Fatal(err)
		}
		at := u.GetNamespace()
		if mapping.Scope.Name() == "namespace" && at == "" {
			at = namespace
		}
		_, err = k.dynamic.Resource(mapping.Resource).Namespace(at).Get(t.Context(), u.GetName(), metav1.GetOptions{})
		switch {
		case err == nil:
			count++
		case !apierrors.IsNotFound(err):
			t.Error(err)
		}
	}
	return count
}

// The packed chart renders the same.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	helm(t, "package", chartDir, "--destination", dir)
	packed, err := filepath.Glob(dir + "/deltabridge-*.tgz")
	if err != nil || len(packed) != 1 {
		t.Fatalf("%v, %v", packed, err)
	}
	if info, err := os.Stat(packed[0]); err != nil || info.Size() > 200<<10 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	got := helm(t, "template", "deltabridge", packed[0], "--namespace", namespace, "--values", minimal)
	if want := template(t); got != want {
		t.Error("the packed chart renders something else")
	}
}
