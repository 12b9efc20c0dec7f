package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func clientset(t *testing.T, c *cluster.Cluster) kubernetes.Interface {
	t.Helper()
	cfg := rest.CopyConfig(c.RESTConfig())
	cfg.QPS = -1
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// newNamespace makes a namespace that no other test uses.
func newNamespace(t *testing.T, cs kubernetes.Interface) string {
	t.Helper()
	ns, err := cs.CoreV1().
		Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	since, err := strconv.ParseInt(ns.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	created.Store(ns.Name, since)
	return ns.Name
}

// churn creates count ConfigMaps, updates each one updates times and deletes every second one, by eight workers as
// fast as the API server takes it. While the API server is away it waits and tries again.
func churn(ctx context.Context, cs kubernetes.Interface, namespace, prefix string, count, updates int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for n := range count {
		group.Go(func() error { return oneLife(ctx, cs, namespace, fmt.Sprintf("%s-%d", prefix, n), updates, n%2 == 0) })
	}
	return group.Wait()
}

func oneLife(ctx context.Context, cs kubernetes.Interface, namespace, name string, updates int, deleted bool) error {
	return oneLifeOf(ctx, cs, namespace, name, 2200, updates, deleted)
}

// oneLifeOf is oneLife of an object of a size in bytes.
func oneLifeOf(
	ctx context.Context,
	cs kubernetes.Interface,
	namespace, name string,
	size, updates int,
	deleted bool,
) error {
	api := cs.CoreV1().ConfigMaps(namespace)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"payload": strings.Repeat("x", size)},
	}
	err := persist(ctx, func() error {
		_, err := api.Create(ctx, cm, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // an earlier attempt was written although it was not answered
			err = nil
		}
		return err
	})
	for n := 0; n < updates && err == nil; n++ {
		cm.Data["n"] = itoa(n)
		err = persist(ctx, func() error {
			_, err := api.Update(ctx, cm, metav1.UpdateOptions{})
			return err
		})
	}
	if deleted && err == nil {
		err = persist(ctx, func() error {
			err := api.Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return err
		})
	}
	return err
}

// persist repeats an operation while the API server is away, or comes up and does not know its users yet.
func persist(ctx context.Context, operation func() error) error {
	for {
		err := operation()
		switch apierrors.ReasonForError(err) {
		case metav1.StatusReasonNotFound,
			metav1.StatusReasonAlreadyExists,
			metav1.StatusReasonConflict,
			metav1.StatusReasonInvalid,
			metav1.StatusReasonBadRequest:
			return err
		}
		if err == nil {
			return nil
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}
