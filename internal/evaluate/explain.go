package evaluate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// ExplainOptions configures `bridge explain`.
type ExplainOptions struct {
	Old string // file with the previous state, for updates
	// Operation is added, deleted or restated. It is ignored if Old is set.
	Operation string
	Namespace string // namespace of the object if neither the file nor the argument specifies one
	Resource  string // resource of an object in a file; if empty, it is looked up at the API server
	Offline   bool   // query neither the API server nor the destinations
	Version   string // version of the binary
}

// operation returns the operation to explain.
func (o *ExplainOptions) operation() event.Type {
	switch {
	case o.Old != "":
		return event.Updated
	case o.Operation == event.Deleted.String():
		return event.Deleted
	case o.Operation == event.Restated.String():
		return event.Restated
	default:
		return event.Added
	}
}

// explainer creates reports for one configuration.
type explainer struct {
	ExplainOptions
	cfg    *config.Config
	client rest.Interface     // nil if the API server is not queried
	served []discovery.Served // the resources that the API server serves
	uid    string             // uid of the cluster; empty if the user is not allowed to read it
}

// subject is a change to explain.
type subject struct {
	change      // resource has the version that the bridge watches
	live   bool // whether the object was read from the cluster
	notes  []string
}

// Explain returns one report per object. args is either one file with objects (- for stdin), or a resource and the name
// of an object in the cluster, which requires that neither Offline nor Resource is set.
func (o ExplainOptions) Explain(
	ctx context.Context, cfg *config.Config, args []string, stdin io.Reader,
) (reports []*Report, err error) {
	e := &explainer{ExplainOptions: o, cfg: cfg}
	subjects, err := e.findSubjects(ctx, args, stdin)
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		r, err := e.explain(ctx, s)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// explain returns the report about a change.
func (e *explainer) explain(ctx context.Context, s *subject) (*Report, error) {
	r, err := e.begin(ctx, s)
	if err != nil {
		return nil, err
	}
	existing, notes := e.readRelated(ctx, s)
	r.Notes = slices.Concat(r.Notes, notes)
	served := []discovery.Served{s.served}
	for n := range existing {
		served = append(served, existing[n].served)
	}
	switch s.operation {
	case event.Added:
	case event.Restated:
		existing = append(existing, change{resource: s.resource, now: s.now})
	default:
		existing = append(existing, change{resource: s.resource, now: s.old})
	}
	scopes := assemble.Scopes(e.cfg)
	if !r.Watched { // the report says what would be sent
		resource := pattern.ParseResources([]string{r.Object.Resource})
		scopes = append(scopes[len(e.cfg.Watch):], fleet.Scope{Resources: resource})
	}
	evaluator, err := newEvaluator(options{
		cfg: e.cfg, scopes: scopes, existing: existing, clusterUID: e.uid, at: time.Now(), ask: !e.Offline,
	}, served) // r says which field selectors select the object
	if err != nil {
		return nil, err
	}
	if r.Sinks, err = evaluator.evaluate(ctx, &s.change); err != nil {
		return nil, err
	}
	for n := range r.Sinks {
		r.Sinks[n].Sent = r.Sinks[n].Sent && r.Watched
	}
	for _, name := range e.cfg.AuditSinks() {
		r.Notes = append(r.Notes, "sink "+name+" is sent audit events, and no changes")
	}
	return r, nil
}

// begin returns what a report contains that does not depend on sinks.
func (e *explainer) begin(ctx context.Context, s *subject) (*Report, error) {
	last := s.last()
	raw, err := last.MarshalJSON()
	if err != nil {
		return nil, err
	}
	o, err := object.New(raw)
	if err != nil {
		return nil, err
	}
	r := &Report{Operation: s.operation.String(), Notes: s.notes, Object: Object{
		Resource: event.GroupResource(s.resource), APIVersion: last.GetAPIVersion(), Kind: last.GetKind(),
		Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion, Bytes: len(o.Raw),
	}}
	var fields fieldSelector
	if s.live {
		fields = func(selector string, _ state) (bool, error) {
			found, err := e.get(ctx, s.resource, o.Namespace, o.Name, selector)
			if err != nil {
				err = fmt.Errorf("list objects selected by %s: %w", selector, err)
			}
			return found != nil, err
		}
	}
	return r, r.explainWatch(e.cfg, &s.change, fields)
}
