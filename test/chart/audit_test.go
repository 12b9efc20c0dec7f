package chart

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/metrics"
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
			[]string{"--values", withLog, "--set", noVolume + ",replicas=2," + withAudit},
			map[string]any{"container": port, "streams/deltabridge-audit": port, "address": "", "policy": port},
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

// What docs/audit.md sets up fits together: the intake that the chart configures accepts the API server that has the
// kubeconfig and the certificate of the page, and refuses one without a certificate, and the intake's own certificate.
func TestAuditPage(t *testing.T) {
	dir := t.TempDir()
	block := auditBlocks(t)
	if out, _, err := command(t, "sh", "-ec", "cd '"+dir+"'\n"+block("openssl x509")); err != nil {
		t.Fatal(err, out)
	}
	copyFile(t, dir+"/ca.crt", dir+"/intake/ca.crt")
	copyFile(t, dir+"/ca.crt", dir+"/api-server/ca.crt")
	out := helm(t, "template", "deltabridge", chartDir, "--namespace", "deltabridge",
		"--values", writeFile(t, "values.yaml", block("# values.yaml")))
	address := runIntake(t, renderedConfig(t, out), dir)
	several := helm(
		t,
		"template",
		"deltabridge",
		chartDir,
		"--values",
		writeFile(t, "values.yaml", block("# values.yaml")),
		"--values",
		writeFile(t, "replicas.yaml", block("replicas: 2")),
	)
	if !strings.Contains(several, "kind: Deployment") || !strings.Contains(several, "deltabridge-audit\n") {
		t.Errorf("several replicas: %s", several)
	}

	send := func(with func(*rest.Config)) (status int, err error) {
		t.Helper()
		return sendAuditEvent(t, block("client-certificate:"), endpointOf(t, out), address, dir, with)
	}
	if status, err := send(func(*rest.Config) {}); status != http.StatusOK || err != nil {
		t.Errorf("with the certificate of the page: %d, %v", status, err)
	}
	if status, err := send(func(c *rest.Config) { c.CertFile, c.KeyFile = "", "" }); status != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d, %v", status, err)
	}
	// Whether the client sees the alert or only a closed connection is a matter of time.
	status, err := send(func(c *rest.Config) { c.CertFile, c.KeyFile = dir+"/intake/tls.crt", dir+"/intake/tls.key" })
	if status != 0 || err == nil {
		t.Errorf("with the certificate of the intake: %d, %v", status, err)
	}
}

// auditBlocks returns a function that returns the block of code in docs/audit.md that contains a text.
func auditBlocks(t *testing.T) (block func(text string) string) {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^( *)```[a-z]+\n(.*?)^ *```$").FindAllStringSubmatch(string(page), -1)
	return func(text string) string {
		t.Helper()
		for _, m := range blocks {
			if strings.Contains(m[2], text) {
				return strings.TrimPrefix(strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n"), "\n")
			}
		}
		t.Fatalf("docs/audit.md has no block with %q", text)
		return ""
	}
}

// runIntake runs the endpoint of a configuration, with the files of the intake in dir, and returns its address.
func runIntake(t *testing.T, text, dir string) (address string) {
	t.Helper()
	text = strings.ReplaceAll(text, "/etc/deltabridge/credentials/audit", dir+"/intake")
	text = strings.ReplaceAll(text, "/var/lib/deltabridge", dir+"/state")
	cfg, err := config.Parse("bridge.yaml", []byte(text))
	if err == nil {
		err = os.Mkdir(dir+"/state", 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	journal, err := assemble.AuditJournal(cfg, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Audit.Listen = "127.0.0.1:0"
	server, err := assemble.AuditServer(cfg.Audit, journal, metrics.NewAuditIntake(journal.Status), log)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(t.Context()) }()
	t.Cleanup(func() { // after the context has ended
		if err := errors.Join(<-ended, journal.Close()); err != nil {
			t.Error(err)
		}
	})
	return server.Addr().String()
}

// endpointOf returns the host and the port, and the name of the Service for audit events in a rendering.
func endpointOf(t *testing.T, rendering string) (endpoint [2]string) {
	t.Helper()
	for _, o := range objects(t, rendering) {
		if o.Kind != "Service" || !strings.HasSuffix(o.Name, "-audit") {
			continue
		}
		var s corev1.Service
		o.decode(t, &s)
		port := strconv.Itoa(int(s.Spec.Ports[0].Port))
		return [2]string{net.JoinHostPort(s.Spec.ClusterIP, port), s.Name + "." + s.Namespace + ".svc"}
	}
	t.Fatal("there is no Service for audit events")
	return endpoint
}

// sendAuditEvent sends an event as an API server with this kubeconfig does, but to another address. The kubeconfig must
// be for the endpoint. Its files are in dir.
func sendAuditEvent(
	t *testing.T, kubeconfig string, endpoint [2]string, address, dir string, with func(*rest.Config),
) (status int, err error) {
	t.Helper()
	for _, part := range endpoint {
		if strings.Count(kubeconfig, part) != 1 {
			t.Fatalf("the kubeconfig is not for %s:\n%s", part, kubeconfig)
		}
	}
	kubeconfig = strings.NewReplacer(endpoint[0], address, "/etc/kubernetes/audit", dir+"/api-server").Replace(kubeconfig)
	c, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	with(c)
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	body := fmt.Sprintf(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"level":"Metadata","auditID":"a",
		"stage":"ResponseComplete","requestURI":"/api","verb":"create","user":{"username":"u"},
		"requestReceivedTimestamp":%[1]q,"stageTimestamp":%[1]q}]}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Host, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(filepath.Clean(to), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
