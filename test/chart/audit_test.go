package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// withAudit are values that add the endpoint for audit events to the minimal ones.
const withAudit = "config.audit.tokenFile=/a"

// auditObjects returns what a rendering has for audit events: the ports of the container, the Service and the
// NetworkPolicy, and the address of the Service.
func auditObjects(t *testing.T, args ...string) map[string]any {
	t.Helper()
	found := map[string]any{}
	out := template(t, append([]string{"--set", "networkPolicy.enabled=true"}, args...)...)
	for _, p := range bridgePod(t, out).Spec.Containers[0].Ports {
		if p.Name == "audit" {
			found["container"] = p.ContainerPort
		}
	}
	for _, o := range objects(t, out) {
		switch o.Kind {
		case "Service":
			var service corev1.Service
			o.decode(t, &service)
			for _, p := range service.Spec.Ports {
				if p.TargetPort.StrVal != "audit" {
					continue
				}
				if !service.Spec.PublishNotReadyAddresses || len(service.Spec.Ports) != 1 {
					t.Errorf("Service %s: %+v", service.Name, service.Spec)
				}
				found[service.Namespace+"/"+service.Name] = p.Port
				found["address"] = service.Spec.ClusterIP
			}
		case "NetworkPolicy":
			var policy networkingv1.NetworkPolicy
			o.decode(t, &policy)
			for _, rule := range policy.Spec.Ingress[2:] {
				found["policy"] = rule.Ports[0].Port.IntVal
				for _, peer := range rule.From {
					found["from"] = peer.IPBlock.CIDR
				}
			}
		}
	}
	return found
}

// API servers reach the endpoint for audit events, if there is one, and no one else needs to. The Service is not the
// headless one: it has an address, and the certificate contains its name.
func TestAuditEndpoint(t *testing.T) {
	const port, other = int32(8443), int32(9443)
	for _, tt := range []struct {
		args []string
		want map[string]any
	}{
		{nil, map[string]any{}},
		{[]string{"--set", withAudit + ",config.audit.listen=127.0.0.1:8443"}, map[string]any{}},
		{[]string{"--set", withAudit + ",config.audit.listen=[::1]:8443"}, map[string]any{}},
		{
			[]string{"--set", withAudit},
			map[string]any{"container": port, "streams/deltabridge-audit": port, "address": "", "policy": port},
		},
		{
			[]string{"--set", withAudit + ",config.audit.listen=0.0.0.0:9443,fullnameOverride=a,namespaceOverride=b"},
			map[string]any{"container": other, "b/a-audit": other, "address": "", "policy": other},
		},
		{
			[]string{"--values", chartDir + "/examples/audit.yaml"},
			map[string]any{
				"container": port, "streams/deltabridge-audit": port, "address": "10.96.0.50", "policy": port, "from": "10.0.0.0/29",
			},
		},
	} {
		if diff := cmp.Diff(tt.want, auditObjects(t, tt.args...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.args, diff)
		}
	}
}
