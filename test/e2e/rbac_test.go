package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/process"
)

// runBridge runs a command of the binary to its end.
func runBridge(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, bridgeBinary, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, &errs, process.Attr()
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// withRights makes a service account in a namespace of its own, with the rights that `bridge rbac` prints for a
// configuration and nothing else. It returns a kubeconfig for it, when they are in force.
func withRights(t *testing.T, c *cluster.Cluster, config string, flags ...string) (kubeconfig string) {
	t.Helper()
	cs := clientset(t, c)
	account := newNamespace(t, cs) // the name of all that is made here
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "kubeconfig: %q\n%s", c.Kubeconfig(), config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, err := runBridge(
		t,
		append(
			[]string{"rbac", "--config", file, "--namespace", account, "--service-account", account, "--name", account},
			flags...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	scopes := apply(t, c, out)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	if _, err := cs.CoreV1().ServiceAccounts(account).Create(t.Context(), sa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := cs.CoreV1().
		ServiceAccounts(account).
		CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin := c.RESTConfig()
	access := clientcmdapi.NewConfig()
	access.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	access.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	access.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	access.CurrentContext = "x"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		t.Fatal(err)
	}
	user := userOf(t, kubeconfig)
	for _, scope := range scopes {
		attributes := authorizationv1.ResourceAttributes{
			Verb:      scope.verb,
			Group:     scope.group,
			Resource:  scope.resource,
			Name:      scope.name,
			Namespace: scope.namespace,
		}
		eventually(t, 20*time.Second, func() error {
			allowed, err := may(t.Context(), user, attributes)
			if err == nil && !allowed {
				err = fmt.Errorf("%v is not in force", attributes)
			}
			return err
		})
	}
	return kubeconfig
}

func userOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// may asks the API server whether a user may do something.
func may(ctx context.Context, user kubernetes.Interface, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review, err := user.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// request is one that a rule allows.
type request struct{ verb, group, resource, subresource, namespace, name string }

// apply creates objects from YAML, as kubectl does. It gives one request for the last rule of each role.
func apply(t *testing.T, c *cluster.Cluster, text string) (allowed []request) {
	t.Helper()
	api, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return allowed
		}
		if err != nil {
			t.Fatal(err)
		}
		if object.Object == nil {
			continue
		}
		resource := rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(object.GetKind()) + "s")
		var target dynamic.ResourceInterface = api.Resource(resource)
		if object.GetNamespace() != "" {
			target = api.Resource(resource).Namespace(object.GetNamespace())
		}
		if _, err := target.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if rules, found, err := unstructured.NestedSlice(object.Object, "rules"); found && err == nil {
			rule := rules[len(rules)-1].(map[string]any)
			first := func(key string) string {
				values, _, _ := unstructured.NestedStringSlice(rule, key)
				return append(values, "")[0]
			}
			allowed = append(
				allowed,
				request{first("verbs"), first("apiGroups"), first("resources"), "", object.GetNamespace(), first("resourceNames")},
			)
		}
	}
}

// judgeRights asks for every verb on everything that the cluster serves, subresources too, in all namespaces and in
// each of those given, and compares with what is wanted.
func judgeRights(t *testing.T, c *cluster.Cluster, kubeconfig string, namespaces []string, want func(request) bool) {
	t.Helper()
	user := userOf(t, kubeconfig)
	_, lists, err := clientset(t, c).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var questions []request
	seen := map[request]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			resource, subresource, _ := strings.Cut(r.Name, "/")
			for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
				for _, namespace := range append([]string{""}, namespaces...) {
					for _, name := range []string{"", "kube-system", "deltabridge-probe"} {
						q := request{verb, gv.Group, resource, subresource, namespace, name}
						if seen[q] || namespace != "" && !r.Namespaced || name != "" && verb != "get" {
							continue
						}
						seen[q] = true
						questions = append(questions, q)
					}
				}
			}
		}
	}
	answers := make([]bool, len(questions))
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for n, q := range questions {
		group.Go(func() (err error) {
			answers[n], err = may(ctx, user, authorizationv1.ResourceAttributes{
				Verb:        q.verb,
				Group:       q.group,
				Resource:    q.resource,
				Subresource: q.subresource,
				Namespace:   q.namespace,
				Name:        q.name,
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for n, q := range questions {
		if answers[n] == want(q) {
			continue
		}
		if wrong++; wrong <= 10 {
			t.Errorf("%+v: allowed %t", q, answers[n])
		}
	}
	t.Logf("%d questions, %d wrong answers", len(questions), wrong)
	_, err = user.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if secrets := want(
		request{"list", "", "secrets", "", "", ""},
	); apierrors.IsForbidden(err) == secrets ||
		!secrets && err == nil {
		t.Errorf("Secrets are wanted: %t; they are listed with %v", secrets, err)
	}
}

// basic is what Kubernetes allows every service account, and what the bridge has to know of the cluster.
func basic(q request, wildcards bool) bool {
	switch {
	case q.group == "certificates.k8s.io" && q.resource == "clustertrustbundles": // for all service accounts
		return reads(q)
	case q.verb == "create":
		return strings.HasPrefix(q.resource, "selfsubject") && q.subresource == ""
	case q.subresource != "":
		return false
	case q.group == "" && q.resource == "namespaces":
		return q.verb == "get" && q.name == "kube-system"
	case q.group == "apiextensions.k8s.io" && q.resource == "customresourcedefinitions":
		return wildcards && reads(q)
	case q.group == "apiregistration.k8s.io" && q.resource == "apiservices":
		return wildcards && q.verb == "list"
	}
	return false
}

func reads(q request) bool {
	return slices.Contains([]string{"get", "list", "watch"}, q.verb) && q.subresource == ""
}

// readsAll is what is granted on all of a group.
func readsAll(q request) bool {
	probe := q.verb == "get" && q.name == "deltabridge-probe" // a subresource too, of an object that is not there
	return q.verb == "list" || q.verb == "watch" || probe
}

// TestRights: with what `bridge rbac` prints everything that is watched arrives, at the first start and after a
// restart, and nothing else can be read.
func TestRights(t *testing.T) {
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace, other := newNamespace(t, cs), newNamespace(t, cs)
	sink := func(stream string) string {
		return fmt.Sprintf(
			"sinks: [{name: jetstream, nats: {url: %q, subject: \"%s.{resource}.{namespace}.{name}\", stream: {name: %s, create: true}}}]\n",
			js.url(),
			stream,
			stream,
		)
	}
	arrives := func(t *testing.T, kubeconfig, config, stream string) *bridge {
		t.Helper()
		dir := t.TempDir()
		b := startBridgeIn(t, dir, kubeconfig, config)
		b.waitReady()
		if err := oneLife(t.Context(), cs, namespace, strings.ToLower(stream), 3, true); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, func() error { return b.reached(configMapHistory(t, c, namespace)) })
		b.stop()
		b = startBridgeIn(t, dir, kubeconfig, config)
		b.waitReady()
		if !strings.Contains(b.log.String(), resumedLine) {
			t.Error("the second start has not resumed")
		}
		if strings.Contains(b.log.String(), "cannot read the namespace kube-system") {
			t.Error("the cluster's uid is not known")
		}
		if err := oneLife(t.Context(), cs, namespace, strings.ToLower(stream)+"-again", 0, true); err != nil {
			t.Fatal(err)
		}
		truth := configMapHistory(t, c, namespace)
		eventually(t, 20*time.Second, func() error { return b.reached(truth) })
		judge(
			t,
			stream,
			slices.DeleteFunc(truth, func(ch change) bool { return !strings.Contains(ch.subject, "/"+strings.ToLower(stream)) }),
			"configmaps/"+namespace+"/"+strings.ToLower(stream),
			js.read(stream),
		)
		return b
	}

	t.Run("named", func(t *testing.T) {
		config := "watch: [{resources: [configmaps, deployments.apps]}]\n" + sink("NAMED")
		kubeconfig := withRights(t, c, config)
		b := arrives(t, kubeconfig, config, "NAMED")
		if strings.Contains(b.log.String(), "orbidden") {
			t.Error("something was forbidden")
		}
		b.stop()
		judgeRights(t, c, kubeconfig, []string{other}, func(q request) bool {
			return basic(q, false) ||
				reads(q) && (q.group == "" && q.resource == "configmaps" || q.group == "apps" && q.resource == "deployments")
		})
	})
	t.Run("namespaced", func(t *testing.T) {
		config := fmt.Sprintf(
			"watch: [{resources: [configmaps, deployments.apps, secrets], namespaces: [%s]}]\n%s",
			namespace,
			sink("NAMESPACED"),
		)
		kubeconfig := withRights(t, c, config)
		b := arrives(t, kubeconfig, config, "NAMESPACED")
		if strings.Contains(b.log.String(), "orbidden") {
			t.Error("something was forbidden")
		}
		b.stop()
		judgeRights(t, c, kubeconfig, []string{namespace, other}, func(q request) bool {
			named := q.group == "" && (q.resource == "configmaps" || q.resource == "secrets") ||
				q.group == "apps" && q.resource == "deployments"
			return basic(q, false) || reads(q) && named && q.namespace == namespace
		})
	})
	t.Run("everything", func(t *testing.T) {
		config := "watch: [{resources: [\"*\"]}]\n" + sink("EVERYTHING")
		kubeconfig := withRights(t, c, config, "--group", "rights.example.com")
		b := arrives(t, kubeconfig, config, "EVERYTHING")
		api, err := dynamic.NewForConfig(c.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		things := schema.GroupVersionResource{Group: "rights.example.com", Version: "v1", Resource: "things"}
		definitions := cluster.Definitions(api)
		if _, err := definitions.Create(
			t.Context(),
			cluster.Definition(things, "Thing"),
			metav1.CreateOptions{},
		); err != nil {
			t.Fatal(err)
		}
		thing := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": "rights.example.com/v1",
				"kind":       "Thing",
				"metadata":   map[string]any{"name": "one"},
			},
		}
		eventually(t, 20*time.Second, func() error {
			_, err := api.Resource(things).Namespace("default").Create(t.Context(), thing, metav1.CreateOptions{})
			return err
		})
		eventually(t, 15*time.Second, func() error { // less than the 30 seconds without the definitions
			if b.metric("deltabridge_events_acknowledged_total", "resource=things.rights.example.com") == 0 {
				return errors.New("the custom resource has not arrived")
			}
			return nil
		})
		if !strings.Contains(b.log.String(), "secrets is forbidden") {
			t.Error("Secrets are not forbidden")
		}
		for line := range strings.Lines(b.log.String()) {
			if strings.Contains(line, "orbidden") && !strings.Contains(line, "secrets is forbidden") &&
				!strings.Contains(line, ".example.com") {
				t.Error(line)
			}
		}
		b.stop()
		judgeRights(t, c, kubeconfig, []string{other}, func(q request) bool {
			switch {
			case q.group == "":
				// Not a part of the list: they can't be watched.
				return basic(q, true) ||
					reads(q) && !slices.Contains([]string{"secrets", "componentstatuses", "bindings"}, q.resource)
			case q.group == "authentication.k8s.io",
				q.group == "authorization.k8s.io",
				strings.HasSuffix(q.group, ".example.com") && q.group != things.Group:
				return basic(q, true)
			default:
				return basic(q, true) || readsAll(q)
			}
		})
		if err := definitions.Delete(t.Context(), "things.rights.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("discovered", func(t *testing.T) {
		config := "watch: [{resources: [\"*.v1\", \"*.apps\", \"l*.coordination.k8s.io\"], exclude: [\"*sets.apps\", events]}]\n" + sink(
			"DISCOVERED",
		)
		kubeconfig := withRights(t, c, config, "--discover")
		arrives(t, kubeconfig, config, "DISCOVERED").stop()
		judgeRights(t, c, kubeconfig, []string{other}, func(q request) bool {
			switch {
			case q.group == "":
				return basic(q, true) ||
					reads(q) && !slices.Contains([]string{"secrets", "componentstatuses", "bindings", "events"}, q.resource)
			case q.group == "apps":
				return reads(q) && !strings.HasSuffix(q.resource, "sets")
			case q.group == "coordination.k8s.io":
				return reads(q) && strings.HasPrefix(q.resource, "l")
			default:
				return basic(q, true)
			}
		})
	})
}
