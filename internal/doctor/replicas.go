package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/rbac"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const (
	stepLease    = "lease"
	stepCommands = "commands"
)

// checkLease checks whether the bridge may use the Lease of the replicas, and who holds the Lease.
func (e *examination) checkLease(ctx context.Context) {
	lease, err := assemble.Lease(e.cfg)
	if err != nil {
		e.fail(stepLease, lease.Name, err, "set election.lease.namespace")
		return
	}
	target := lease.Namespace + "/" + lease.Name
	var verbs, forbidden []string
	rules := rbac.Lease(lease.Name)
	if e.cfg.Audit != nil {
		rules = append(rules, rbac.AuditLease(assemble.AuditLease(lease))...)
	}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			attributes := attributesOf(rule, verb)
			attributes.Namespace = lease.Namespace
			if len(rule.ResourceNames) > 0 {
				attributes.Name = rule.ResourceNames[0]
			}
			allowed, err := e.isAllowed(ctx, authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes})
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

// attributesOf describes a request that a rule for one resource allows.
func attributesOf(rule rbacv1.PolicyRule, verb string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0]}
}

// isAllowed asks the API server whether a request would be allowed.
func (e *examination) isAllowed(ctx context.Context, spec authorizationv1.SelfSubjectAccessReviewSpec) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	review := authorizationv1.SelfSubjectAccessReview{Spec: spec}
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	data, err := e.client.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(body).MaxRetries(0).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, &review)
	}
	return review.Status.Allowed, err
}

// checkCommands checks whether the bridge may examine the tokens of commands from other replicas, and whether the
// leader accepts its own commands.
func (e *examination) checkCommands(ctx context.Context) {
	const target = "from other replicas"
	var forbidden []string
	for _, rule := range rbac.Commands() {
		verb := rule.Verbs[0]
		specs := map[string]authorizationv1.SelfSubjectAccessReviewSpec{}
		for _, path := range rule.NonResourceURLs {
			specs[path] = authorizationv1.SelfSubjectAccessReviewSpec{
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
			}
		}
		for _, resource := range rule.Resources {
			specs[resource] = authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributesOf(rule, verb)}
		}
		for _, name := range slices.Sorted(maps.Keys(specs)) {
			allowed, err := e.isAllowed(ctx, specs[name])
			if err != nil {
				e.warn(stepCommands, target, "cannot check the permissions: "+err.Error(), checkLog)
				return
			}
			if !allowed {
				forbidden = append(forbidden, verb+" "+name)
			}
		}
	}
	if len(forbidden) > 0 {
		e.warn(stepCommands, target, notAllowed(forbidden)+
			": `bridge resync`, `pause` and `resume` work only in the Pod of the leader", rbacRemedy)
		return
	}
	e.ok(stepCommands, target, "allowed")
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
