package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// apiServer has the clients of an API server that can be reached.
type apiServer struct {
	client rest.Interface
	disco  *discovery.DiscoveryClient
}

const (
	rbacRemedy = "grant what `bridge rbac --config FILE` prints"
	// expiresSoon is how long before its expiry a certificate leads to a warning.
	expiresSoon = 7 * 24 * time.Hour
)

func (e *examination) checkAPIServer(ctx context.Context) {
	kube, err := e.Kube()
	if err != nil {
		e.fail("kubeconfig", e.Config.Kubeconfig, err, "set `kubeconfig` to a file that the bridge can read")
		return
	}
	kube = rest.CopyConfig(kube)
	e.ok("kubeconfig", e.kubeconfigName(), "API server "+kube.Host)
	if !e.connect(ctx, kube) {
		return
	}
	client, err := informer.NewClient(kube)
	if err == nil {
		e.api = &apiServer{client: client}
		kube.QPS = -1
		e.api.disco, err = discovery.NewDiscoveryClientForConfig(kube)
	}
	if err != nil {
		e.fail("kubeconfig", e.kubeconfigName(), err, "correct the kubeconfig")
		return
	}
	if e.authenticate(ctx) {
		e.readClusterUID(ctx)
		e.checkWatches(ctx)
		return
	}
	e.api = nil
}

func (e *examination) kubeconfigName() string {
	if e.Config.Kubeconfig != "" {
		return e.Config.Kubeconfig
	}
	if _, err := rest.InClusterConfig(); err == nil {
		return "service account of the pod"
	}
	return "default of kubectl"
}

// connect tries each step of a connection to the API server: DNS, TCP and TLS. Through a proxy it tries nothing.
func (e *examination) connect(ctx context.Context, kube *rest.Config) bool {
	server, err := url.Parse(kube.Host)
	if err == nil && server.Host == "" {
		server, err = url.Parse("https://" + kube.Host)
	}
	if err != nil {
		e.fail("kubeconfig", kube.Host, err, "correct the server in the kubeconfig")
		return false
	}
	if proxy := proxyOf(kube, server); proxy != "" {
		e.ok(sinks.StepConnect, kube.Host, "through the proxy "+proxy)
		return true
	}
	port := server.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[server.Scheme]
	}
	if port == "" {
		port = "443"
	}
	address := net.JoinHostPort(server.Hostname(), port)
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	if net.ParseIP(server.Hostname()) == nil {
		ips, err := net.DefaultResolver.LookupHost(ctx, server.Hostname())
		if err != nil {
			e.fail(sinks.StepResolve, server.Hostname(), err, "correct the server in the kubeconfig, or the DNS (egress to port 53)")
			return false
		}
		e.ok(sinks.StepResolve, server.Hostname(), strings.Join(ips, ", "))
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		e.fail(sinks.StepConnect, address, plain(err), connectRemedy(err))
		return false
	}
	defer conn.Close()
	e.ok(sinks.StepConnect, address, "connected")
	if server.Scheme == "http" {
		e.warn(sinks.StepTLS, address, "the connection is not encrypted", "use https in the kubeconfig")
		return true
	}
	return e.handshake(ctx, kube, conn, server.Hostname(), address)
}

func proxyOf(kube *rest.Config, server *url.URL) string {
	choose := kube.Proxy
	if choose == nil {
		choose = http.ProxyFromEnvironment
	}
	proxy, err := choose(&http.Request{URL: server})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Host
}

func connectRemedy(err error) string {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "nothing listens there: start the API server, or correct the server in the kubeconfig"
	}
	return "check firewalls, NetworkPolicies and the server in the kubeconfig"
}

// plain returns a network error without its addresses.
func plain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}

func (e *examination) handshake(ctx context.Context, kube *rest.Config, conn net.Conn, host, address string) bool {
	config, err := rest.TLSConfigFor(kube)
	if err != nil {
		e.fail(sinks.StepFiles, "certificates", err, "correct the certificates in the kubeconfig")
		return false
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		e.fail(sinks.StepTLS, address, err, tlsRemedy(err))
		return false
	}
	state := secured.ConnectionState()
	detail := tls.VersionName(state.Version)
	if config.InsecureSkipVerify {
		e.warn(sinks.StepTLS, address, detail+"; the server certificate is not verified",
			"replace insecure-skip-tls-verify in the kubeconfig with certificate-authority")
		return true
	}
	e.checkExpiry(sinks.StepTLS, address, detail+"; server certificate ", state.PeerCertificates[0],
		"renew the certificate of the API server")
	if config.GetClientCertificate != nil {
		if own, err := config.GetClientCertificate(&tls.CertificateRequestInfo{}); err == nil && own.Leaf != nil {
			e.checkExpiry(sinks.StepFiles, "client certificate", "", own.Leaf, "renew the certificate in the kubeconfig")
		}
	}
	return true
}

// checkExpiry reports until when a certificate is valid. It warns if that is soon.
func (e *examination) checkExpiry(step, target, prefix string, cert *x509.Certificate, remedy string) {
	detail := prefix + "valid until " + cert.NotAfter.UTC().Format(time.RFC3339)
	if time.Until(cert.NotAfter) < expiresSoon {
		e.warn(step, target, detail, remedy)
		return
	}
	e.ok(step, target, detail)
}

func tlsRemedy(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		header  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &unknown):
		return "set certificate-authority or certificate-authority-data in the kubeconfig to the CA of the server certificate"
	case errors.As(err, &host):
		return "use a server name that is in the certificate, or set tls-server-name in the kubeconfig"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the API server, or correct the clock of this machine"
	case errors.As(err, &header):
		return "the server does not speak TLS: check the port in the kubeconfig"
	default:
		return "check the certificates in the kubeconfig"
	}
}

// authenticate asks the API server for the bridge's user name and for the server's version. It returns false if further
// checks of the API server are impossible.
func (e *examination) authenticate(ctx context.Context) bool {
	var review authenticationv1.SelfSubjectReview
	err := e.post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &authenticationv1.SelfSubjectReview{}, &review)
	switch {
	case apierrors.IsUnauthorized(err):
		e.fail(sinks.StepAuthenticate, "", err, "renew the token or certificate in the kubeconfig, or create the service account")
		return false
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		e.ok(sinks.StepAuthenticate, "", "the API server does not report the user name of the bridge")
	case err != nil:
		e.fail(sinks.StepAuthenticate, "", err, "check the API server's log")
		return false
	case review.Status.UserInfo.Username == "system:anonymous":
		e.warn(sinks.StepAuthenticate, "", "the bridge is not authenticated: system:anonymous",
			"give the bridge a service account, or a kubeconfig with credentials")
	default:
		e.ok(sinks.StepAuthenticate, "", "as "+review.Status.UserInfo.Username)
	}
	var info version.Info
	data, err := e.get(ctx, "/version")
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	if err != nil {
		e.fail("version", "/version", err, "check the API server's log")
		return false
	}
	e.ok("version", "", "Kubernetes "+info.GitVersion)
	return true
}

func (e *examination) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	return e.api.client.Get().AbsPath(path).MaxRetries(0).DoRaw(ctx)
}

// post sends a review, which the API server answers but does not store.
func (e *examination) post(ctx context.Context, path string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	data, err := e.api.client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, answer)
}

// readClusterUID reads the uid of the namespace kube-system, which identifies the cluster.
func (e *examination) readClusterUID(ctx context.Context) {
	data, err := e.get(ctx, "/api/v1/namespaces/kube-system")
	if err == nil {
		o, malformed := object.New(data)
		if malformed == nil {
			e.cluster = string(o.UID)
			e.ok("cluster", "namespace kube-system", "uid "+e.cluster)
			return
		}
		err = malformed
	}
	e.warn("cluster", "namespace kube-system",
		"cannot read its uid, so the bridge would not notice that a checkpoint belongs to another cluster: "+err.Error(), rbacRemedy)
}

// each calls do for 0 to count-1, at most limit calls at once, and returns when all have returned.
func each(count, limit int, do func(n int)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, max(limit, 1))
	for n := range count {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(n)
		})
	}
	group.Wait()
}
