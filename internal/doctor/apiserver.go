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

// apiServer is a way to an API server that answers.
type apiServer struct {
	client rest.Interface
	disco  *discovery.DiscoveryClient
}

const (
	rbacRemedy = "grant what `bridge rbac --config FILE` prints"
	// endsSoon is how long before its end a certificate is worth a warning.
	endsSoon = 7 * 24 * time.Hour
)

func (e *examination) apiServer(ctx context.Context) {
	kube, err := e.Kube()
	if err != nil {
		e.fail("kubeconfig", e.Config.Kubeconfig, err, "name a kubeconfig that can be read in `kubeconfig`")
		return
	}
	kube = rest.CopyConfig(kube)
	e.ok("kubeconfig", e.kubeconfigName(), "API server "+kube.Host)
	if !e.reach(ctx, kube) {
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
		e.clusterUID(ctx)
		e.watches(ctx)
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
	return "that of kubectl"
}

// reach goes to the API server step by step, as far as TLS.
func (e *examination) reach(ctx context.Context, kube *rest.Config) bool {
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
	return "look at firewalls and NetworkPolicies on the way, and at the server in the kubeconfig"
}

// plain is a network error without the ports of this side.
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
		e.warn(sinks.StepTLS, address, detail+", and the server's certificate is not verified", "give the authority's certificate in the kubeconfig in place of insecure-skip-tls-verify")
		return true
	}
	e.certificate(sinks.StepTLS, address, detail+", the server's certificate", state.PeerCertificates[0], "renew the certificate of the API server")
	if config.GetClientCertificate != nil {
		if own, err := config.GetClientCertificate(&tls.CertificateRequestInfo{}); err == nil && own.Leaf != nil {
			e.certificate(sinks.StepFiles, "client certificate", "it", own.Leaf, "renew the certificate in the kubeconfig")
		}
	}
	return true
}

// certificate says until when one is valid.
func (e *examination) certificate(step, target, what string, cert *x509.Certificate, remedy string) {
	detail := fmt.Sprintf("%s is valid until %s", what, cert.NotAfter.UTC().Format(time.RFC3339))
	if time.Until(cert.NotAfter) < endsSoon {
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
		return "put the certificate of the authority that signed it into certificate-authority(-data) of the kubeconfig"
	case errors.As(err, &host):
		return "use a server name that the certificate has, or set tls-server-name in the kubeconfig"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the API server, or set the clock of this machine"
	case errors.As(err, &header):
		return "it does not speak TLS: is it the API server's port?"
	default:
		return "look at the certificates in the kubeconfig"
	}
}

// authenticate asks who the API server takes the bridge for, and which version it is.
func (e *examination) authenticate(ctx context.Context) bool {
	var review authenticationv1.SelfSubjectReview
	err := e.post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &authenticationv1.SelfSubjectReview{}, &review)
	switch {
	case apierrors.IsUnauthorized(err):
		e.fail(sinks.StepAuthenticate, "", err, "renew the token or certificate in the kubeconfig, or create the service account")
		return false
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		e.ok(sinks.StepAuthenticate, "", "the API server does not say who the bridge is")
	case err != nil:
		e.fail(sinks.StepAuthenticate, "", err, "look at the API server's log")
		return false
	case review.Status.UserInfo.Username == "system:anonymous":
		e.warn(sinks.StepAuthenticate, "", "the API server does not know who the bridge is: system:anonymous", "give the bridge a service account, or a kubeconfig with credentials")
	default:
		e.ok(sinks.StepAuthenticate, "", "as "+review.Status.UserInfo.Username)
	}
	var info version.Info
	data, err := e.get(ctx, "/version")
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	if err != nil {
		e.fail("version", "/version", err, "look at the API server's log")
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

// post sends a review, of which the API server keeps nothing.
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

// clusterUID is what tells this cluster from others.
func (e *examination) clusterUID(ctx context.Context) {
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
	e.warn("cluster", "namespace kube-system", "its uid can't be read, so a checkpoint of another cluster would not be noticed: "+err.Error(), rbacRemedy)
}

// each calls do for 0 to count-1, at most limit at once.
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
