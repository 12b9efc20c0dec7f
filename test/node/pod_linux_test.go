package node

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod returns the bridge's Pod.
func (n *node) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod, err := n.client.CoreV1().Pods("deltabridge").Get(t.Context(), bridgePod, metav1.GetOptions{})
	must(t, err)
	return pod
}

// wait waits until the bridge's Pod is ready and meets a condition.
func (n *node) wait(t *testing.T, condition func(*corev1.Pod) bool) {
	t.Helper()
	n.waitFor(t, "the Pod is ready", func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil && condition(pod) && isReady(pod)
	})
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (n *node) waitFor(t *testing.T, what string, condition func(*corev1.Pod) bool) {
	t.Helper()
	start := time.Now()
	within(t, 3*time.Minute, func() error {
		pod, err := n.client.CoreV1().Pods("deltabridge").Get(t.Context(), bridgePod, metav1.GetOptions{})
		if err == nil && !condition(pod) {
			err = fmt.Errorf("not yet: %s; %+v", what, pod.Status)
		}
		return err
	})
	t.Logf("%5.1f s  until %s", time.Since(start).Seconds(), what)
}

func restarts(pod *corev1.Pod) (count int32) {
	for _, s := range pod.Status.ContainerStatuses {
		count += s.RestartCount
	}
	return count
}

// get returns the status code and the body that the bridge in a Pod answers.
func get(t *testing.T, pod *corev1.Pod, path string) string {
	t.Helper()
	code, body, err := tryGet(t, "http://"+pod.Status.PodIP+":8080"+path)
	must(t, err)
	return strconv.Itoa(code) + " " + string(body)
}

func tryGet(t *testing.T, url string) (code int, body []byte, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// pause lets time pass that the step itself is about.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
