package cluster

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The controllers turn a Deployment into a ReplicaSet, that into Pods, and say so
// in Events. Nobody schedules the Pods.
func TestControllerManager(t *testing.T) {
	c := ForTest(t)
	ctx := t.Context()
	if err := c.StartControllerManager(ctx); err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, c)
	events, err := client.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	const replicas = 2
	labels := map[string]string{"app": "web"}
	_, err = client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for reasons["SuccessfulCreate"] < replicas || reasons["ScalingReplicaSet"] < 1 {
		event, ok := (<-events.ResultChan()).Object.(*corev1.Event)
		if !ok {
			t.Fatalf("the watch ended; events until then, by reason: %v", reasons)
		}
		reasons[event.Reason]++
	}
	sets, err := client.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	if len(sets.Items) != 1 || len(pods.Items) != replicas {
		t.Fatalf("%d ReplicaSets and %d Pods, want 1 and %d", len(sets.Items), len(pods.Items), replicas)
	}
	for _, pod := range pods.Items {
		if owner := metav1.GetControllerOf(&pod); owner == nil || owner.UID != sets.Items[0].UID {
			t.Errorf("Pod %s is owned by %v, want the ReplicaSet", pod.Name, owner)
		}
		if pod.Status.Phase != corev1.PodPending {
			t.Errorf("Pod %s is %s, want it pending", pod.Name, pod.Status.Phase)
		}
	}
}
