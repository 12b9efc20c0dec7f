package chart

import (
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Each object has its kind's fields and no others: an API server would drop an unknown field without an error.
func TestTypes(t *testing.T) {
	kinds := map[string]func() any{
		"ServiceAccount":      func() any { return &corev1.ServiceAccount{} },
		"ConfigMap":           func() any { return &corev1.ConfigMap{} },
		"Service":             func() any { return &corev1.Service{} },
		"StatefulSet":         func() any { return &appsv1.StatefulSet{} },
		"Deployment":          func() any { return &appsv1.Deployment{} },
		"Pod":                 func() any { return &corev1.Pod{} },
		"NetworkPolicy":       func() any { return &networkingv1.NetworkPolicy{} },
		"PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
		"ClusterRole":         func() any { return &rbacv1.ClusterRole{} },
		"ClusterRoleBinding":  func() any { return &rbacv1.ClusterRoleBinding{} },
		"Role":                func() any { return &rbacv1.Role{} },
		"RoleBinding":         func() any { return &rbacv1.RoleBinding{} },
		"ServiceMonitor":      func() any { return &monitoringv1.ServiceMonitor{} },
		"PodMonitor":          func() any { return &monitoringv1.PodMonitor{} },
		"PrometheusRule":      func() any { return &monitoringv1.PrometheusRule{} },
	}
	seen := map[string]bool{}
	for name, values := range examples(t) {
		for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
			for _, o := range objects(t, template(t, append([]string{"--set", "monitor.enabled=true,monitor.kind=" + kind}, values...)...)) {
				seen[o.Kind] = true
				if kinds[o.Kind] == nil {
					t.Errorf("%s: the test does not know %s", name, o.Kind)
					continue
				}
				o.decode(t, kinds[o.Kind]())
			}
		}
	}
	for kind := range kinds {
		if !seen[kind] {
			t.Errorf("no example has a %s", kind)
		}
	}
}
