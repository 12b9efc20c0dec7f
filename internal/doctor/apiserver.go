package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	stepKubeconfig = "kubeconfig"
	rbacRemedy     = "grant what `bridge rbac --config FILE` prints"
	// expiresSoon is the remaining validity of a certificate below which doctor warns.
	expiresSoon = 7 * 24 * time.Hour
)

func (e *examination) checkAPIServer(ctx context.Context) {
	kube, err := e.Kube()
	if err != nil {
		e.fail(stepKubeconfig, e.Config.Kubeconfig, err, "set `kubeconfig` to a file that the bridge can read")
		return
	}
	kube.QPS = -1 // no rate limit for discovery
	name := e.kubeconfigName()
	e.ok(stepKubeconfig, name, "API server "+kube.Host)
	client, err := informer.NewClient(kube)
	if err != nil {
		e.fail(stepKubeconfig, name, err, "correct the kubeconfig")
		return
	}
	disco, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		e.fail(stepKubeconfig, name, err, "correct the kubeconfig")
		return
	}
	if e.connect(ctx, kube, client.Get().AbsPath("/version").URL()) && e.authenticate(ctx, client) {
		e.client = client
		e.readClusterUID(ctx)
		e.checkWatches(ctx, disco)
	}
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

// connect requests the version of the API server. It reports the connection, the certificates and the version. It
// returns false if it cannot connect.
func (e *examination) connect(ctx context.Context, kube *rest.Config, server *url.URL) bool {
	client, err := rest.HTTPClientFor(kube)
	if err != nil {
		e.fail(stepKubeconfig, server.Host, err, "correct the certificates and credentials in the kubeconfig")
		return false
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.String(), http.NoBody)
	if err != nil {
		e.fail(stepKubeconfig, server.Host, err, "correct the server in the kubeconfig")
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		step, target, remedy := explainFailure(server, err)
		e.fail(step, target, err, remedy)
		return false
	}
	defer response.Body.Close()
	e.ok(sinks.StepConnect, server.Host, "connected")
	e.checkTLS(kube, server.Host, response.TLS)
	var info version.Info
	if response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(&info) == nil {
		e.ok("version", "", "Kubernetes "+info.GitVersion)
	}
	return true
}

// explainFailure returns the step at which a connection failed, the host or address of the server, and a remedy.
func explainFailure(server *url.URL, err error) (step, target, remedy string) {
	var (
		dns     *net.DNSError
		op      *net.OpError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	step, target = sinks.StepTLS, server.Host
	switch {
	case errors.As(err, &dns):
		return sinks.StepResolve, server.Hostname(), "correct the server in the kubeconfig, or the DNS (egress to port 53)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return sinks.StepConnect, target, "nothing listens there: start the API server, or correct the server in the kubeconfig"
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &op) && op.Op == "dial":
		return sinks.StepConnect, target, "check firewalls, NetworkPolicies, proxies and the server in the kubeconfig"
	case errors.As(err, &unknown):
		remedy = "set certificate-authority or certificate-authority-data in the kubeconfig to the CA of the server certificate"
	case errors.As(err, &host):
		remedy = "use a server name that is in the certificate, or set tls-server-name in the kubeconfig"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		remedy = "renew the certificate of the API server, or correct the clock of this machine"
	default:
		remedy = "check the port and the certificates in the kubeconfig"
	}
	return step, target, remedy
}

// checkTLS checks whether the connection is encrypted and verified, and reports when the certificates expire.
func (e *examination) checkTLS(kube *rest.Config, address string, state *tls.ConnectionState) {
	switch {
	case state == nil:
		e.warn(sinks.StepTLS, address, "the connection is not encrypted", "use https in the kubeconfig")
		return
	case kube.Insecure:
		e.warn(sinks.StepTLS, address, tls.VersionName(state.Version)+"; the server certificate is not verified",
			"replace insecure-skip-tls-verify in the kubeconfig with certificate-authority")
	default:
		e.checkExpiry(
			sinks.StepTLS,
			address,
			tls.VersionName(state.Version)+"; server certificate ",
			state.PeerCertificates[0],
			"renew the certificate of the API server",
		)
	}
	config, err := rest.TLSConfigFor(kube)
	if err != nil || config == nil || config.GetClientCertificate == nil {
		return
	}
	if own, err := config.GetClientCertificate(&tls.CertificateRequestInfo{}); err == nil && own.Leaf != nil {
		e.checkExpiry(sinks.StepFiles, "client certificate", "", own.Leaf, "renew the certificate in the kubeconfig")
	}
}

// checkExpiry reports the expiry date of a certificate. It warns if the certificate expires soon.
func (e *examination) checkExpiry(step, target, prefix string, cert *x509.Certificate, remedy string) {
	detail := prefix + "valid until " + cert.NotAfter.UTC().Format(time.RFC3339)
	if time.Until(cert.NotAfter) < expiresSoon {
		e.warn(step, target, detail, remedy)
		return
	}
	e.ok(step, target, detail)
}

// authenticate asks the API server for the user name of the bridge. It returns false if no further checks of the API
// server are possible.
func (e *examination) authenticate(ctx context.Context, client rest.Interface) bool {
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	var review authenticationv1.SelfSubjectReview
	data, err := client.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").
		SetHeader("Content-Type", "application/json").Body([]byte("{}")).MaxRetries(0).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, &review)
	}
	switch user := review.Status.UserInfo.Username; {
	case apierrors.IsUnauthorized(err):
		e.fail(
			sinks.StepAuthenticate,
			"",
			err,
			"renew the token or certificate in the kubeconfig, or create the service account",
		)
		return false
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		e.ok(sinks.StepAuthenticate, "", "the API server does not report the user name of the bridge")
	case err != nil:
		e.fail(sinks.StepAuthenticate, "", err, "check the API server's log")
		return false
	case user == "system:anonymous":
		e.warn(sinks.StepAuthenticate, "", "the bridge is not authenticated: system:anonymous",
			"give the bridge a service account, or a kubeconfig with credentials")
	default:
		e.ok(sinks.StepAuthenticate, "", "as "+user)
	}
	return true
}

// readClusterUID reads the uid that identifies the cluster.
func (e *examination) readClusterUID(ctx context.Context) {
	const step, target = "cluster", "namespace kube-system"
	uid, err := tracker.ReadClusterUID(ctx, e.client)
	if uid != "" {
		e.cluster = uid
		e.ok(step, target, "uid "+uid)
		return
	}
	detail := "cannot read its uid, so the bridge would not notice that a checkpoint belongs to another cluster"
	if err != nil {
		detail += ": " + err.Error()
	}
	e.warn(step, target, detail, rbacRemedy)
}
