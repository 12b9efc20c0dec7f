package starter

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// write writes a configuration, which must be valid, and returns its text too.
func write(t *testing.T, o *Options) (*config.Config, string) {
	t.Helper()
	text, err := Write(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, text)
	}
	return c, text
}

// newJetStream starts a server, and returns its URL.
func newJetStream(t *testing.T, edit func(*server.Options)) (string, jetstream.JetStream) {
	t.Helper()
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	}
	edit(opts)
	_, stop := natsserver.Start(t, opts)
	t.Cleanup(stop)
	url := natsserver.ClientURL(opts)
	return url, natsserver.Connect(t, url, natsgo.UserInfo(opts.Username, opts.Password))
}

// The configuration watches what exists, except what is rarely of interest, and has an embedded server. Its comments are
// valid too.
func TestWriteForACluster(t *testing.T) {
	c := cluster.Shared(t)
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "starter-"}}
		if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "starter-"}}
		_, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg, text := write(t, &Options{Kubeconfig: c.Kubeconfig()})
	if cfg.Kubeconfig != c.Kubeconfig() || len(cfg.Watch) != 1 || cfg.Sinks[0].NATS.Embedded == nil {
		t.Errorf("%+v", cfg)
	}
	watched := strings.Join(cfg.Watch[0].Resources, " ") + " "
	for resource, want := range map[string]bool{
		"namespaces": true, "serviceaccounts": true, "clusterroles.rbac.authorization.k8s.io": true,
		"pods": false, "secrets": false, "leases.coordination.k8s.io": false, "events": false,
	} {
		if strings.Contains(watched, resource+" ") != want || !strings.Contains(text, "- "+resource) {
			t.Errorf("%s is watched: %t\n%s", resource, !want, text)
		}
	}
	if !regexp.MustCompile(`- serviceaccounts  # objects: ([2-9]|[1-9][0-9]+)\n`).MatchString(text) {
		t.Errorf("the service accounts are not counted:\n%s", text)
	}
	if strings.Contains(text, "No permission") {
		t.Errorf("no permission is missing:\n%s", text)
	}
	// With the keys in comments
	keys := regexp.MustCompile(`(?m)^( +)# ((  )*(- |[a-z]+:))`).ReplaceAllString(text, "$1$2")
	full, err := config.Parse("bridge.yaml", []byte(keys))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, keys)
	}
	if len(full.Sinks) != 3 || len(full.Sinks[0].Filters) != 2 || len(full.Watch[0].Namespaces) != 2 ||
		len(full.Watch[0].Resources) < len(cfg.Watch[0].Resources)+20 {
		t.Errorf("%+v", full)
	}
}

// A user with few permissions has a configuration for these.
func TestWriteForAUser(t *testing.T) {
	c := cluster.Shared(t)
	path, err := c.RestrictedKubeconfig(t.Context(), []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	allow(t, c, strings.TrimSuffix(filepath.Base(path), ".kubeconfig"))
	cfg, text := write(t, &Options{Kubeconfig: path, Cluster: "prod/eu 1."})
	want := []config.Watch{
		{Resources: []string{"namespaces"}},
		{Resources: []string{"serviceaccounts"}, Namespaces: []string{"default"}},
	}
	if diff := cmp.Diff(want, cfg.Watch); diff != "" || cfg.Cluster != "prod-eu-1" {
		t.Errorf("cluster %s, watch (-want +got):\n%s\n%s", cfg.Cluster, diff, text)
	}
	if !regexp.MustCompile(`\n# No permission to list and watch:.* nodes `).MatchString(text) {
		t.Errorf("nodes cannot be watched:\n%s", text)
	}

	if path, err = c.RestrictedKubeconfig(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.Context(), &Options{Kubeconfig: path}); err == nil ||
		!strings.Contains(err.Error(), "may not list and watch any resource") {
		t.Errorf("without permissions: %v", err)
	}
}

// allow grants a service account access to the service accounts of its namespace.
func allow(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	about := metav1.ObjectMeta{Name: name}
	rule := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list", "watch"},
	}
	role := &rbacv1.Role{ObjectMeta: about, Rules: []rbacv1.PolicyRule{rule}}
	_, err = client.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: about, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "default"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// What the server has decides about the keys of the stream.
func TestWriteForNATS(t *testing.T) {
	c := cluster.Shared(t)
	url, js := newJetStream(t, func(*server.Options) {})
	section := func(keys string) (*config.Config, string) {
		t.Helper()
		return write(t, &Options{Kubeconfig: c.Kubeconfig(), Broker: &Broker{KindNATS, keys}})
	}
	cfg, text := section(url)
	n := cfg.Sinks[0].NATS
	if n.URLs[0] != url || !n.Stream.Create || n.Stream.Replicas != 1 ||
		!strings.Contains(text, "    # 1 server; stream K8S does not exist yet\n") {
		t.Errorf("%+v\n%s", n, text)
	}
	if _, err := js.CreateStream(
		t.Context(),
		jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}},
	); err != nil {
		t.Fatal(err)
	}
	if cfg, text = section(url); cfg.Sinks[0].NATS.Stream.Create ||
		!strings.Contains(text, "# 1 server; stream K8S exists: ") {
		t.Errorf("the stream exists:\n%s", text)
	}
	cfg, text = section("{url: " + url + ", subject: 'audit.{name}', stream: {name: AUDIT, replicas: 1, maxAge: 24h}}")
	if n = cfg.Sinks[0].NATS; n.Stream.Name != "AUDIT" || !n.Stream.Create || n.Stream.MaxAge == 0 {
		t.Errorf("%+v\n%s", n, text)
	}
	if _, text = section(
		"{url: " + url + ", stream: {name: OTHER}}",
	); !strings.Contains(
		text,
		"stream OTHER does not exist yet; ",
	) ||
		!strings.Contains(text, "the subjects of stream K8S overlap") {
		t.Errorf("overlapping subjects:\n%s", text)
	}
	if _, text = section("{url: " + url + ", bucket: STATE}"); !strings.Contains(text, "bucket STATE does not exist yet") {
		t.Errorf("a bucket:\n%s", text)
	}
}

// Credentials are in the keys. A broker that cannot be used, and wrong keys, are errors.
func TestWriteForABrokerThatRequiresCredentials(t *testing.T) {
	c := cluster.Shared(t)
	url, _ := newJetStream(t, func(o *server.Options) { o.Username, o.Password = "u", "s3cret" })
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &Options{Kubeconfig: c.Kubeconfig(), File: filepath.Join(dir, "bridge.yaml")}
	o.Broker = &Broker{KindNATS, "{url: " + url + ", user: u, passwordFile: password}"}
	text, err := Write(t.Context(), o)
	if err != nil || !strings.Contains(text, "      passwordFile: password\n") || strings.Contains(text, "s3cret") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := config.Parse(o.File, []byte(text)); err != nil {
		t.Error(err)
	}
	for keys, want := range map[string]string{
		url:                               "authenticate",
		"{url: " + url + ", password: a}": "passwordFile",
		"{url: [":                         "nats: ",
		"nats://127.0.0.1:1":              "connection refused",
		"nats://a:b@c":                    "contains credentials",
	} {
		o.Broker = &Broker{KindNATS, keys}
		if _, err := Write(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", keys, err, want)
		}
	}
}

func TestWriteEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, &Options{Kubeconfig: cluster.Shared(t).Kubeconfig()}); err == nil {
		t.Error("it was canceled")
	}
}
