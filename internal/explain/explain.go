package explain

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Options configures Reports.
type Options struct {
	Old string // file with the previous state, for updates
	// Operation is added, updated, deleted or restated. If it is empty, the operation is updated if Old is set, and added
	// otherwise.
	Operation string
	Namespace string // namespace of the object if neither the file nor the argument specifies one
	Resource  string // resource of an object in a file; if empty, it is looked up at the API server
	Offline   bool   // query neither the API server nor the destinations
	Version   string // version of the binary
}

// timeout is the time limit for the API server and for each destination.
const timeout = 10 * time.Second

// Check returns an error if the options contradict each other or the arguments of Reports.
func (o *Options) Check(args []string) error {
	switch {
	case len(args) == 2 && o.Offline:
		return errors.New("--offline: the object must be in a file")
	case len(args) == 2 && o.Resource != "":
		return errors.New("--resource requires an object in a file")
	}
	_, err := o.operation()
	return err
}

// operation returns the operation to explain. It returns an error if the options contradict each other.
func (o *Options) operation() (event.Type, error) {
	if o.Operation == "" && o.Old == "" {
		return event.Added, nil
	}
	name := cmp.Or(o.Operation, event.Updated.String())
	operations := []event.Type{event.Added, event.Updated, event.Deleted, event.Restated}
	n := slices.IndexFunc(operations, func(t event.Type) bool { return t.String() == name })
	switch {
	case n < 0:
		return 0, fmt.Errorf("--operation %s: must be added, updated, deleted or restated", name)
	case operations[n] == event.Updated && o.Old == "":
		return 0, errors.New("--operation updated: set --old to a file with the previous state")
	case operations[n] != event.Updated && o.Old != "":
		return 0, fmt.Errorf("--old: only for an update, but --operation is %s", name)
	}
	return operations[n], nil
}

// explainer creates reports for one configuration.
type explainer struct {
	Options
	cfg       *config.Config
	scopes    []fleet.Scope // the entries of `watch`
	operation event.Type

	client rest.Interface     // nil if the API server is not queried
	served []discovery.Served // the resources that the API server serves
	uid    string             // uid of the cluster; empty if the user is not allowed to read it
}

// Reports returns one report per object. args is either one file with objects (- for stdin), or a resource and the name
// of an object in the cluster. [Options.Check] must accept args.
func (o Options) Reports(
	ctx context.Context, cfg *config.Config, args []string, stdin io.Reader,
) (reports []*Report, err error) {
	e := &explainer{Options: o, cfg: cfg, scopes: assemble.Scopes(cfg)[:len(cfg.Watch)]}
	if e.operation, err = o.operation(); err != nil {
		return nil, err
	}
	subjects, err := e.findSubjects(ctx, args, stdin)
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		if err := e.explain(ctx, s); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		reports = append(reports, &s.Report)
	}
	return reports, nil
}

// explain adds the sinks to the report of a subject.
func (e *explainer) explain(ctx context.Context, s *subject) error {
	key := make([]byte, 32) // any key is sufficient, because fingerprints are not shown and all have the same length
	_, _ = rand.Read(key)
	redaction, err := assemble.RedactionWith(e.cfg, key)
	if err != nil {
		return err
	}
	if hide := redaction.Transform(); hide != nil { // as in the informers
		hide(s.resource, s.now)
		if s.old != nil {
			hide(s.resource, s.old)
		}
	}
	parts, err := assemble.Offline(e.cfg, redaction, unknownInstallation)
	if err != nil {
		return err
	}
	var needs enrich.Needs
	for n := range parts {
		needs = needs.Or(parts[n].Enrich)
	}
	if needs != (enrich.Needs{}) {
		s.index = enrich.New(enrich.Options{Needs: needs, Bytes: assemble.Enrichment(e.cfg, redaction).FactBytes})
		s.Notes = append(s.Notes, e.learn(ctx, s)...)
	}
	if e.cfg.SelectsNamespaces() {
		s.Notes = append(s.Notes, e.readNamespace(ctx, s)...)
	}
	for n := range e.cfg.Sinks {
		c := &e.cfg.Sinks[n]
		part := slices.IndexFunc(parts, func(p engine.Sink) bool { return p.Name == c.Name })
		if part < 0 {
			s.Notes = append(s.Notes, "sink "+c.Name+" is sent audit events, and no changes")
			continue
		}
		sink, err := e.explainSink(ctx, parts[part], c, s)
		if err != nil {
			return err
		}
		s.Sinks = append(s.Sinks, sink)
	}
	return nil
}

// explainSink passes the change through the filters and the encoder of one sink, and asks the destination where it
// would store the message.
func (e *explainer) explainSink(ctx context.Context, part engine.Sink, c *config.Sink, s *subject) (Sink, error) {
	trial, err := engine.NewTrial(part, e.uid, s.index)
	if err != nil {
		return Sink{}, err
	}
	trial.SelectNamespaces(s.namespaces)
	out := Sink{Name: part.Name, Kind: c.Kind(), Filters: trial.Filter().Explain(s.resource, e.operation, s.old, s.now)}
	change := engine.Change{Resource: s.resource, Type: e.operation, Old: s.old, Now: s.now, Selected: s.selected}
	m := trial.Message(ctx, change)
	switch {
	case m == nil:
		return out, nil
	case m.Type.IsControl(): // the object could not be encoded
		out.Error = m.GapInfo.Message
		return out, nil
	}
	out.Sent, out.Operation = s.Watched, m.Operation()
	out.Message = &Message{ID: m.ID, Attributes: maps.Collect(m.Attributes)}
	previewer, ok := part.Destination.(diagnose.Previewer)
	if !ok {
		out.Message.Size = int64(len(m.Body()))
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := previewer.Preview(ctx, m, !e.Offline)
	if out.Message.Placement = p; err != nil {
		out.Error = err.Error()
	}
	if p.Unknown != nil {
		out.Message.Incomplete = p.Unknown.Error()
	}
	if p.Limit > 0 && p.Size > p.Limit {
		out.Message.Oversize = "the sink's setting oversize: " + string(c.Oversize) + " applies"
	}
	return out, nil
}
