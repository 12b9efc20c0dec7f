package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/test/cluster"
)

const demoNamespace = "demo"

var widgets = schema.GroupVersionResource{Group: "demo.deltabridge.dev", Version: "v1", Resource: "widgets"}

// worker makes the changes that the demo shows.
type worker struct {
	ctx    context.Context //nolint:containedctx // one run of a script
	kube   kubernetes.Interface
	custom dynamic.Interface
}

// runWorkload plays a day in a cluster, over and over until ctx ends: a Deployment comes, is scaled and goes;
// configuration changes; a custom resource is defined, used and removed.
func runWorkload(ctx context.Context, config *rest.Config) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	w := &worker{ctx, kube, custom}
	steps := []func() error{
		w.createNamespace,
		w.createConfig,
		w.createDeployment,
		w.changeConfig,
		w.scaleDeployment,
		w.defineWidgets,
		w.createWidget,
		w.changeWidget,
		w.createSecret,
		w.deleteWidget,
		w.deleteConfig,
		w.deleteDeployment,
		w.removeWidgets,
		w.deleteSecret,
	}
	if !w.pause(settle) {
		return nil
	}
	for {
		for _, step := range steps {
			if err := step(); err != nil && ctx.Err() == nil {
				return err
			}
			if !w.pause(2 * time.Second) {
				return nil
			}
		}
	}
}

// pause reports whether the workload goes on.
func (w *worker) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func exists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (w *worker) createNamespace() error {
	_, err := w.kube.CoreV1().
		Namespaces().
		Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: demoNamespace}}, metav1.CreateOptions{})
	return exists(err)
}

func (w *worker) createConfig() error {
	_, err := w.kube.CoreV1().ConfigMaps(demoNamespace).Create(w.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"},
	}, metav1.CreateOptions{})
	return exists(err)
}

func (w *worker) changeConfig() error {
	settings, err := w.kube.CoreV1().ConfigMaps(demoNamespace).Get(w.ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return err
	}
	settings.Data["colour"] = "green"
	_, err = w.kube.CoreV1().ConfigMaps(demoNamespace).Update(w.ctx, settings, metav1.UpdateOptions{})
	return err
}

func (w *worker) deleteConfig() error {
	return gone(w.kube.CoreV1().ConfigMaps(demoNamespace).Delete(w.ctx, "settings", metav1.DeleteOptions{}))
}

func (w *worker) createDeployment() error {
	labels := map[string]string{"app": "web"}
	_, err := w.kube.AppsV1().Deployments(demoNamespace).Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	return exists(err)
}

func (w *worker) scaleDeployment() error {
	scale, err := w.kube.AppsV1().Deployments(demoNamespace).GetScale(w.ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = 3
	_, err = w.kube.AppsV1().Deployments(demoNamespace).UpdateScale(w.ctx, "web", scale, metav1.UpdateOptions{})
	return err
}

func (w *worker) deleteDeployment() error {
	return gone(w.kube.AppsV1().Deployments(demoNamespace).Delete(w.ctx, "web", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}))
}

func (w *worker) createSecret() error {
	_, err := w.kube.CoreV1().Secrets(demoNamespace).Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "hunter2"},
	}, metav1.CreateOptions{})
	return exists(err)
}

func (w *worker) deleteSecret() error {
	return gone(w.kube.CoreV1().Secrets(demoNamespace).Delete(w.ctx, "db", metav1.DeleteOptions{}))
}

func (w *worker) defineWidgets() error {
	_, err := cluster.Definitions(w.custom).Create(w.ctx, cluster.Definition(widgets, "Widget"), metav1.CreateOptions{})
	return exists(err)
}

func (w *worker) removeWidgets() error {
	return gone(cluster.Definitions(w.custom).Delete(w.ctx, widgets.GroupResource().String(), metav1.DeleteOptions{}))
}

// createWidget waits for the API server to serve what was defined a moment ago.
func (w *worker) createWidget() error {
	var err error
	for range 20 {
		_, err = w.custom.Resource(widgets).
			Namespace(demoNamespace).
			Create(w.ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": widgets.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": "gear"},
				"spec": map[string]any{"size": int64(1)},
			}}, metav1.CreateOptions{})
		if !apierrors.IsNotFound(err) {
			return exists(err)
		}
		if !w.pause(200 * time.Millisecond) {
			return nil
		}
	}
	return fmt.Errorf("widgets are not served: %w", err)
}

func (w *worker) changeWidget() error {
	api := w.custom.Resource(widgets).Namespace(demoNamespace)
	gear, err := api.Get(w.ctx, "gear", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(gear.Object, int64(2), "spec", "size"); err != nil {
		return errors.Join(errors.New("widget has another form than it was given"), err)
	}
	_, err = api.Update(w.ctx, gear, metav1.UpdateOptions{})
	return err
}

func (w *worker) deleteWidget() error {
	return gone(w.custom.Resource(widgets).Namespace(demoNamespace).Delete(w.ctx, "gear", metav1.DeleteOptions{}))
}
