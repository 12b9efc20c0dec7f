package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const (
	// stepTimeout is the time limit for each step at the API server.
	stepTimeout = 10 * time.Second

	stepKubeconfig = "kubeconfig"
	rbacRemedy     = "apply the output of `bridge rbac --config FILE`"
)

func (e *examination) checkAPIServer(ctx context.Context) {
	kube, err := assemble.Kubeconfig(e.cfg.Kubeconfig)
	if err != nil {
		e.fail(stepKubeconfig, e.cfg.Kubeconfig, err, "set `kubeconfig` to a file that the bridge can read")
		return
	}
	kube.UserAgent, kube.WarningHandler = "deltabridge-doctor/"+e.version, rest.NoWarnings{}
	name := e.kubeconfigName()
	e.ok(stepKubeconfig, name, "API server "+kube.Host)
	client, err := informer.NewClient(kube)
	if err != nil {
		e.fail(stepKubeconfig, name, err, "correct the kubeconfig")
		return
	}
	if e.connect(ctx, client, kube.Insecure) && e.authenticate(ctx, client) {
		e.client = client
		e.readClusterUID(ctx)
		e.checkWatches(ctx)
		if e.cfg.State.Log != nil {
			e.checkLease(ctx)
		}
		if len(e.cfg.HTTP.Peers) > 0 {
			e.checkCommands(ctx)
		}
	}
}

func (e *examination) kubeconfigName() string {
	if _, err := rest.InClusterConfig(); err == nil && e.cfg.Kubeconfig == "" {
		return "service account of the pod"
	}
	return cmp.Or(e.cfg.Kubeconfig, "default kubeconfig")
}

// connect requests the version of the API server. It reports the connection and the version. It returns false if it
// cannot connect.
func (e *examination) connect(ctx context.Context, client rest.Interface, insecure bool) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	request := client.Get().AbsPath("/version").MaxRetries(0)
	server := request.URL()
	data, err := request.DoRaw(ctx)
	if noAnswer, ok := errors.AsType[*url.Error](err); ok {
		e.add(explainFailure(server, noAnswer.Err))
		return false
	}
	e.ok(sinks.StepConnect, server.Host, "connected")
	if server.Scheme != "https" || insecure {
		e.warn(sinks.StepTLS, server.Host, "the connection is not encrypted, or the server certificate is not verified",
			"use https and certificate-authority in the kubeconfig, without insecure-skip-tls-verify")
	}
	var info version.Info
	if err == nil && json.Unmarshal(data, &info) == nil {
		e.ok("version", "", "Kubernetes "+info.GitVersion)
	}
	return true
}

// explainFailure returns the finding for a request to which the API server did not respond.
func explainFailure(server *url.URL, err error) diagnose.Finding {
	f := diagnose.Finding{
		Step: sinks.StepTLS, Target: server.Host, Err: err,
		Remedy: "check that the server certificate has not expired, and check certificate-authority, tls-server-name and " +
			"the client certificate in the kubeconfig",
	}
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		f.Step, f.Target = sinks.StepResolve, server.Hostname()
		f.Remedy = "correct the server in the kubeconfig, or check DNS (including egress to port 53)"
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &op) && op.Op == "dial":
		f.Step = sinks.StepConnect
		f.Remedy = "correct the server in the kubeconfig, or check that the API server is running and that " +
			"no firewall, NetworkPolicy or proxy blocks the connection"
	}
	return f
}

// authenticate asks the API server for the user name of the bridge. It returns false if no further checks of the API
// server are possible.
func (e *examination) authenticate(ctx context.Context, client rest.Interface) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var review authenticationv1.SelfSubjectReview
	data, err := client.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").
		SetHeader("Content-Type", "application/json").Body([]byte("{}")).MaxRetries(0).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, &review)
	}
	switch user := review.Status.UserInfo.Username; {
	case apierrors.IsUnauthorized(err):
		e.fail(sinks.StepAuthenticate, "", err,
			"renew the token or certificate in the kubeconfig, or create the service account")
		return false
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		e.ok(sinks.StepAuthenticate, "", "the API server does not report the user name of the bridge")
	case err != nil:
		e.fail(sinks.StepAuthenticate, "", err, checkLog)
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
