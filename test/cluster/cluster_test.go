package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/test/poll"
)

func clientOf(t *testing.T, c *Cluster) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createConfigMap(t *testing.T, c *Cluster, name string) *corev1.ConfigMap {
	t.Helper()
	made, err := clientOf(t, c).CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"k": "v"},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func wantConfigMap(t *testing.T, c *Cluster, want *corev1.ConfigMap) {
	t.Helper()
	got, err := clientOf(t, c).CoreV1().ConfigMaps(want.Namespace).Get(t.Context(), want.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the ConfigMap changed (-want +got):\n%s", diff)
	}
}

// Each process is ended and started again, in every way and alone; the data stay,
// and the address too.
func TestProcessesRestartAlone(t *testing.T) {
	c := ForTest(t, func(o *Options) { o.APIServerFlags = []string{"--v=1"} })
	before := createConfigMap(t, c, "before")
	ctx := t.Context()
	stopWithWatch := func(ctx context.Context) error {
		w, err := clientOf(t, c).CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if err := c.StopAPIServer(ctx); err != nil {
			return err
		}
		for range w.ResultChan() { // the server ends the watch; a test that hangs here found one that it did not
		}
		if !strings.Contains(c.api.tail(), "apiserver is exiting") {
			return errors.New("the API server was killed, because it waited for the watch")
		}
		return nil
	}
	tests := []struct {
		name    string
		stop    func(context.Context) error
		start   func(context.Context) error
		stopped *program
		stays   *program
	}{
		{"stop API server", stopWithWatch, c.StartAPIServer, &c.api, &c.etcd},
		{"kill API server", func(context.Context) error { return c.KillAPIServer() }, c.StartAPIServer, &c.api, &c.etcd},
		{"kill etcd", func(context.Context) error { return c.KillEtcd() }, c.RestartEtcd, &c.etcd, &c.api},
		{"restart etcd", func(context.Context) error { return nil }, c.RestartEtcd, &c.etcd, &c.api},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			old, other := tt.stopped.run.Pid, tt.stays.run.Pid
			if err := tt.stop(ctx); err != nil {
				t.Fatal(err)
			}
			if tt.stopped.run == nil && tt.stopped == &c.api {
				_, err := clientOf(t, c).CoreV1().ConfigMaps("default").Get(ctx, before.Name, metav1.GetOptions{})
				if err == nil {
					t.Error("the stopped API server answers")
				}
			}
			if err := tt.start(ctx); err != nil {
				t.Fatal(err)
			}
			wantConfigMap(t, c, before)
			if now := tt.stopped.run.Pid; now == old {
				t.Errorf("%s is still process %d", tt.stopped.name, old)
			}
			if now := tt.stays.run.Pid; now != other {
				t.Errorf("%s was process %d and is now %d", tt.stays.name, other, now)
			}
		})
	}
}

// A stopped cluster that is started on its folder is the same cluster: objects,
// credentials, and tokens handed out before.
func TestStartAgainOnTheSameFolder(t *testing.T) {
	dir := t.TempDir()
	c := ForTest(t, func(o *Options) { o.Dir = dir })
	before := createConfigMap(t, c, "before")
	restricted, err := c.RestrictedKubeconfig(t.Context(),
		[]rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}})
	if err != nil {
		t.Fatal(err)
	}
	credentials := c.RESTConfig()
	if n := len(processesOf(t, dir)); n != 2 {
		t.Fatalf("%d processes run, want 2", n)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	wantNoProcess(t, dir)

	c = ForTest(t, func(o *Options) { o.Dir, o.CompactionInterval = dir, time.Second })
	wantConfigMap(t, c, before)
	if now := c.RESTConfig(); now.BearerToken != credentials.BearerToken ||
		string(now.CAData) != string(credentials.CAData) {
		t.Error("the administrator has other credentials than before")
	}
	config, err := clientcmd.BuildConfigFromFlags(c.APIServerURL(), restricted)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(config).
		CoreV1().
		ConfigMaps("").
		List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a token from before is no longer valid: %v", err)
	}
	waitForCompaction(t, c)
}

// waitForCompaction waits until the API server has cut the history, which it was
// told to do every second.
func waitForCompaction(t *testing.T, c *Cluster) {
	t.Helper()
	err := poll.Until(t.Context(), readyPoll, readyTimeout, func() error {
		_, err := c.History(t.Context(), "/registry/configmaps/", 1)
		if errors.Is(err, ErrCompacted) {
			return nil
		}
		return fmt.Errorf("the history is not compacted; the last answer: %w", err)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAccess(t *testing.T) {
	c := ForTest(t)
	t.Run("restricted", func(t *testing.T) { testRestrictedKubeconfig(t, c) })
	t.Run("strangers", func(t *testing.T) { testStrangers(t, c) })
	t.Run("identity", func(t *testing.T) { testIdentity(t, c) })
}

func testRestrictedKubeconfig(t *testing.T, c *Cluster) {
	path, err := c.RestrictedKubeconfig(t.Context(), []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	core := client.CoreV1()
	list := metav1.ListOptions{}
	if _, err := core.ConfigMaps("").List(t.Context(), list); err != nil {
		t.Errorf("list of what is allowed: %v", err)
	}
	if err := client.RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Error(); err != nil {
		t.Errorf("GET of a path that is allowed: %v", err)
	}
	if _, err := core.ConfigMaps("").Watch(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("watch, which is not allowed: %v, want 403", err)
	}
	if _, err := core.Secrets("default").List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("list of another resource: %v, want 403", err)
	}
}

// The kubeconfig is what makes the connection safe; without it there is no way in.
func testStrangers(t *testing.T, c *Cluster) {
	response, err := http.Get(c.APIServerURL() + "/readyz")
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client without the certificate authority: %v, want it to refuse the certificate", err)
	}
	if err == nil {
		response.Body.Close()
	}
	config := c.RESTConfig()
	config.BearerToken = ""
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list without a token: %v, want 403", err)
	}
}

func testIdentity(t *testing.T, c *Cluster) {
	version, err := clientOf(t, c).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version.GitVersion, "v1.37.") || version.Minor != "37" {
		t.Errorf("the API server says that it is %q, minor %q", version.GitVersion, version.Minor)
	}
	if info, err := os.Stat(c.Kubeconfig()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v, %v, want it readable by its owner alone", info.Mode(), err)
	}
}
