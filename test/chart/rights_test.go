package chart

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// With the rights, the configuration and the arguments of the chart, everything that is watched arrives at a real
// nats-server; and nothing else can be read.
func TestRunsWithItsRights(t *testing.T) {
	k := startKube(t)
	k.define(t, "example.com", "v1", "Widget", "widgets")
	k.define(t, "other.com", "v1", "Gadget", "gadgets")
	url := startNATS(t)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	address := natsserver.FreePort(t)
	values := fmt.Sprintf(`
config:
  cluster: local
  kubeconfig: %q
  state: {path: %q}
  http: {listen: %q}
  watch:
    - resources: [pods, "*.example.com"]
    - resources: [configmaps]
      namespaces: [payments]
  sinks:
    - name: nats
      nats: {url: %q, stream: {name: K8S, create: true, subjects: ["k8s.>"]}}
`, kubeconfig, filepath.Join(dir, "state"), address, url)
	k.helm(t, "install", "deltabridge", chartDir, "--values", writeFile(t, "values.yaml", values))
	account := k.asAccount(t, "deltabridge", kubeconfig)

	config := filepath.Join(dir, "bridge.yaml")
	mounted, err := k.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "deltabridge", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(mounted.Data["bridge.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	asMounted := func(args []string) []string {
		args = slices.Clone(args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "/etc/deltabridge/config/bridge.yaml", config)
		}
		return args
	}

	k.create(
		t,
		"v1",
		"pods",
		"default",
		"before",
		map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}},
	)
	k.create(t, "example.com/v1", "widgets", "default", "before", nil)
	k.create(t, "other.com/v1", "gadgets", "default", "unwatched", nil)

	container := k.podOf(t).Spec.Containers[0]
	for n := range container.Env {
		container.Env[n].Value = asMounted([]string{container.Env[n].Value})[0]
		if container.Env[n].Name == "DELTABRIDGE_CONFIG" {
			t.Setenv("DELTABRIDGE_CONFIG", container.Env[n].Value)
		}
	}

	// What `helm test` runs.
	out, _, err := command(t, tools.bridge, asMounted(k.testPod(t).Spec.Containers[0].Args)...)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "API server") || strings.Contains(out, "checkpoint") {
		t.Errorf("helm test does not check the API server, or claims to check the volume:\n%s", out)
	}

	bridge := startBridge(t, container.Env, asMounted(container.Args))
	bridge.waitReady(t, address)

	k.create(t, "v1", "pods", "orders", "after", map[string]any{
		"securityContext": map[string]any{
			"runAsNonRoot":   true,
			"runAsUser":      1,
			"seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
		"containers": []any{map[string]any{"name": "a", "image": "a", "securityContext": map[string]any{
			"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}},
		}}},
	})
	k.create(t, "example.com/v1", "widgets", "payments", "after", nil)
	k.create(t, "v1", "configmaps", "payments", "after", nil)
	k.create(t, "v1", "configmaps", "orders", "unwatched", nil)
	zero := int64(0)
	if err := k.client.CoreV1().
		Pods("default").
		Delete(t.Context(), "before", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}

	want := []string{
		"added configmaps/payments/after",
		"added pods/default/before", "added pods/orders/after",
		"added widgets.example.com/default/before", "added widgets.example.com/payments/after",
		"deleted pods/default/before",
	}
	eventually(t, func() error {
		got := slices.DeleteFunc(received(t, url), func(event string) bool {
			return strings.HasSuffix(event, "/kube-root-ca.crt") || strings.HasPrefix(event, "updated")
		})
		if !slices.Equal(got, want) {
			return fmt.Errorf("the stream has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
	bridge.stop(t)
	k.refusesTheRest(t, account)
}

// refusesTheRest tries to read everything that the API server serves, and to write what is watched.
func (k *kube) refusesTheRest(t *testing.T, account *rest.Config) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(k.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	as, err := dynamic.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	mayList := []string{"", "payments"} // namespaces to try
	allowed := map[string][]string{
		"pods": mayList, "widgets.example.com": mayList, "configmaps": {"payments"},
		"customresourcedefinitions.apiextensions.k8s.io": {""}, "apiservices.apiregistration.k8s.io": {""},
		"clustertrustbundles.certificates.k8s.io": {""}, // Kubernetes grants it to all service accounts
	}
	refused, listed := 0, 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			gvr := gv.WithResource(r.Name)
			for _, at := range mayList {
				if at != "" && !r.Namespaced {
					continue
				}
				_, err := as.Resource(gvr).Namespace(at).List(t.Context(), metav1.ListOptions{})
				may := slices.Contains(allowed[gvr.GroupResource().String()], at)
				switch {
				case may && err != nil, !may && !apierrors.IsForbidden(err):
					t.Errorf("list %s in %q: %v, may: %v", gvr.GroupResource(), at, err, may)
				case may:
					listed++
				default:
					refused++
				}
			}
		}
	}
	if listed != 8 || refused < 40 {
		t.Errorf("%d lists allowed, %d refused", listed, refused)
	}
	core := func(resource, namespace string) dynamic.ResourceInterface {
		return as.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(namespace)
	}
	tries := map[string]func(context.Context) error{
		"a Secret": func(ctx context.Context) error {
			_, err := core("secrets", namespace).Get(ctx, "nats-bridge", metav1.GetOptions{})
			return err
		},
		"watch Secrets": func(ctx context.Context) error {
			_, err := core("secrets", "payments").Watch(ctx, metav1.ListOptions{})
			return err
		},
		"a log": func(ctx context.Context) error {
			_, err := core("pods", "orders").Get(ctx, "after", metav1.GetOptions{}, "log")
			return err
		},
		"delete a Pod": func(ctx context.Context) error {
			return core("pods", "orders").Delete(ctx, "after", metav1.DeleteOptions{})
		},
		"the configuration": func(ctx context.Context) error {
			_, err := core("configmaps", namespace).Get(ctx, "deltabridge", metav1.GetOptions{})
			return err
		},
		"another namespace": func(ctx context.Context) error {
			_, err := core("namespaces", "").Get(ctx, "default", metav1.GetOptions{})
			return err
		},
	}
	for _, what := range slices.Sorted(maps.Keys(tries)) {
		if err := tries[what](t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want Forbidden", what, err)
		}
	}
	if _, err := core("namespaces", "").Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
		t.Errorf("the cluster's identity: %v", err)
	}
}

// asAccount asks for a token of a service account and writes a kubeconfig with it. The account has its rights then.
func (k *kube) asAccount(t *testing.T, name, path string) *rest.Config {
	t.Helper()
	lifetime := int64(time.Hour.Seconds())
	answer, err := k.client.CoreV1().
		ServiceAccounts(namespace).
		CreateToken(t.Context(), name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin := k.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{
		Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData,
	}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	account, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	account.QPS = -1
	k.awaitRights(t, name, account)
	return account
}

// awaitRights waits until the API server knows the rights that a service account was given.
func (k *kube) awaitRights(t *testing.T, name string, account *rest.Config) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	as, err := kubernetes.NewForConfig(account)
	must(err)
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	rules := map[string][]rbacv1.PolicyRule{} // by namespace
	rbac := k.client.RbacV1()
	everywhere, err := rbac.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	must(err)
	for _, b := range everywhere.Items {
		if slices.Contains(b.Subjects, subject) {
			role, err := rbac.ClusterRoles().Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{})
			must(err)
			rules[namespace] = append(rules[namespace], role.Rules...)
		}
	}
	bindings, err := rbac.RoleBindings("").List(t.Context(), metav1.ListOptions{})
	must(err)
	for _, b := range bindings.Items {
		if slices.Contains(b.Subjects, subject) {
			role, err := rbac.Roles(b.Namespace).Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{})
			must(err)
			rules[b.Namespace] = append(rules[b.Namespace], role.Rules...)
		}
	}
	if len(rules) == 0 {
		t.Fatalf("%s has no rights", name)
	}
	for at, want := range rules {
		eventually(t, func() error {
			review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: at}}
			review, err := as.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
			if err == nil && !cluster.InForce(review.Status, want) {
				err = fmt.Errorf("the rights in %s are not in force", at)
			}
			return err
		})
	}
}

func (k *kube) create(t *testing.T, apiVersion, resource, namespace, name string, spec map[string]any) {
	t.Helper()
	kinds := map[string]string{"pods": "Pod", "configmaps": "ConfigMap", "widgets": "Widget", "gadgets": "Gadget"}
	o := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": apiVersion, "kind": kinds[resource], "metadata": map[string]any{"name": name}},
	}
	if spec != nil {
		o.Object["spec"] = spec
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.dynamic.Resource(gv.WithResource(resource)).
		Namespace(namespace).
		Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func startNATS(t *testing.T) string {
	t.Helper()
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}
	_, stop := natsserver.Start(t, opts)
	t.Cleanup(stop)
	return natsserver.ClientURL(opts)
}

// received is what the stream holds, as "OPERATION SUBJECT", sorted.
func received(t *testing.T, url string) []string {
	t.Helper()
	conn := natsserver.Connect(t, url).Conn()
	defer conn.Close()
	js, err := conn.JetStream(natsgo.MaxWait(2 * time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo("K8S")
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for n := info.State.FirstSeq; n <= info.State.LastSeq && n > 0; n++ {
		m, err := js.GetMsg("K8S", n)
		if err != nil {
			t.Fatal(err)
		}
		if kind, ok := strings.CutPrefix(m.Header.Get("ce-type"), "dev.deltabridge.object."); ok {
			events = append(events, kind+" "+m.Header.Get("ce-subject"))
		}
	}
	slices.Sort(events)
	return events
}
