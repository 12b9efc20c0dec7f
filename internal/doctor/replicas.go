package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/rbac"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const stepLease = "lease"

// checkLease checks whether the bridge may use the Lease of the replicas, and who holds the Lease.
func (e *examination) checkLease(ctx context.Context) {
	lease, err := assemble.Lease(e.cfg)
	if err != nil {
		e.fail(stepLease, lease.Name, err, "set election.lease.namespace")
		return
	}
	target := lease.Namespace + "/" + lease.Name
	var verbs, forbidden []string
	for _, rule := range rbac.Lease(lease.Name) {
		for _, verb := range rule.Verbs {
			attributes := authorizationv1.ResourceAttributes{
				Namespace: lease.Namespace, Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0],
			}
			if len(rule.ResourceNames) > 0 {
				attributes.Name = rule.ResourceNames[0]
			}
			allowed, err := e.isAllowed(ctx, &attributes)
			if err != nil {
				e.warn(stepLease, target, "cannot check the permissions: "+err.Error(), checkLog)
				return
			}
			verbs = append(verbs, verb)
			if !allowed {
				forbidden = append(forbidden, verb)
			}
		}
	}
	switch {
	case slices.Equal(forbidden, []string{"watch"}):
		e.warn(stepLease, target, notAllowed(forbidden)+": a standby takes over a little later", rbacRemedy)
	case len(forbidden) > 0:
		e.fail(stepLease, target, errors.New(notAllowed(forbidden)), rbacRemedy)
	default:
		e.ok(stepLease, target, strings.Join(verbs, ", "))
	}
	if !slices.Contains(forbidden, "get") {
		e.readLease(ctx, lease.Namespace, lease.Name)
	}
}

// isAllowed asks the API server whether a request would be allowed.
func (e *examination) isAllowed(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return assemble.IsAllowed(ctx, e.client, a)
}

// readLease reports who holds the Lease.
func (e *examination) readLease(ctx context.Context, namespace, name string) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	target := namespace + "/" + name
	path := "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + name
	var lease coordinationv1.Lease
	data, err := e.client.Get().AbsPath(path).MaxRetries(0).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, &lease)
	}
	switch holder := cmp.Or(lease.Spec.HolderIdentity, new(string)); {
	case apierrors.IsNotFound(err):
		e.ok(stepLease, target, "does not exist yet; the bridge will create it")
	case err != nil:
		e.fail(stepLease, target, err, checkLog)
	case *holder == "":
		e.ok(stepLease, target, "nobody holds it")
	default:
		e.ok(stepLease, target, "held by "+*holder)
	}
}

// checkStateLog checks the state log.
func (e *examination) checkStateLog(ctx context.Context) {
	if checker, ok := e.log.(diagnose.Checker); ok {
		e.add(checker.Check(ctx)...)
	}
	_ = e.log.Close()
}
