package informer_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// This file is what the tests against the real API server share.

// runUntil runs a part until the returned function is called, which waits for its end.
func runUntil(t *testing.T, run func(context.Context) error, httpClient *http.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceFunc(func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(observe.Soon):
			t.Errorf("did not end within %s", observe.Soon)
		}
		httpClient.CloseIdleConnections()
	})
}

// kube is an administrator.
type kube struct {
	*kubernetes.Clientset
	t *testing.T
}

func newKube(t *testing.T) *kube {
	t.Helper()
	config := cluster.Shared(t).RESTConfig()
	typed, err := kubernetes.NewForConfig(config)
	observe.Must(t, err)
	return &kube{typed, t}
}

// namespace makes a new one.
func (k *kube) namespace() string {
	k.t.Helper()
	ns, err := k.CoreV1().
		Namespaces().
		Create(k.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "informer-"}}, metav1.CreateOptions{})
	observe.Must(k.t, err)
	return ns.Name
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func (k *kube) create(namespace, name string) {
	k.t.Helper()
	_, err := k.CoreV1().ConfigMaps(namespace).Create(k.t.Context(), configMap(name, nil), metav1.CreateOptions{})
	observe.Must(k.t, err)
}

func (k *kube) delete(namespace, name string) {
	k.t.Helper()
	observe.Must(k.t, k.CoreV1().ConfigMaps(namespace).Delete(k.t.Context(), name, metav1.DeleteOptions{}))
}
