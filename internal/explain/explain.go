package explain

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Options say what is to be explained.
type Options struct {
	Old       string // the file with the state before, for an update
	Operation string // added, updated, deleted or restated; empty: updated with Old, else added
	Namespace string // of the object, if it is not given with it
	Resource  string // of the object in a file; empty: what the API server says
	Offline   bool   // neither the API server nor the destinations are asked
	Timeout   time.Duration
	Version   string // of the binary

	operation event.Type
}

// check looks at options that do not go together, and finds the operation.
func (o *Options) check(args []string) error {
	switch {
	case len(args) == 2 && o.Offline:
		return errors.New("--offline: the object has to be in a file")
	case len(args) == 2 && o.Resource != "":
		return errors.New("--resource is for an object in a file")
	}
	switch name := o.Operation; name {
	case "":
		o.operation = event.Added
		if o.Old != "" {
			o.operation = event.Updated
		}
	case event.Updated.String():
		if o.operation = event.Updated; o.Old == "" {
			return errors.New("--operation updated: give the state before with --old")
		}
	case event.Added.String(), event.Deleted.String(), event.Restated.String():
		if o.Old != "" {
			return fmt.Errorf("--old is for an update, and --operation is %s", name)
		}
		for _, t := range []event.Type{event.Added, event.Deleted, event.Restated} {
			if t.String() == name {
				o.operation = t
			}
		}
	default:
		return fmt.Errorf("--operation %s: want added, updated, deleted or restated", name)
	}
	return nil
}

// Reports says what becomes of the objects that args name: a file, or a resource and the name of an object in the cluster. A file - is stdin.
func (o Options) Reports(ctx context.Context, cfg *config.Config, args []string, stdin io.Reader) (reports []*Report, err error) {
	if err := o.check(args); err != nil {
		return nil, err
	}
	scopes := make([]fleet.Scope, len(cfg.Watch))
	for n := range cfg.Watch {
		if scopes[n], err = assemble.NewScope(&cfg.Watch[n]); err != nil { // the configuration was checked, so there is none
			return nil, err
		}
	}
	subjects, err := o.subjects(ctx, cfg, scopes, args, stdin)
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		report, err := o.explain(ctx, cfg, s)
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, errors.New("interrupted")
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// subject is one object to be explained, and what is known of it.
type subject struct {
	old, now *object.Object // old is nil but for updates
	resource schema.GroupVersionResource
	watch    []Watch
	watched  bool
	selected bool // the API server selects the objects of the informer that watches it
	notes    []string
	api      *apiServer // nil: it can't be asked
}

func (o *Options) explain(ctx context.Context, cfg *config.Config, s *subject) (*Report, error) {
	r := &Report{
		Object: Object{
			Resource: event.GroupResource(s.resource), APIVersion: s.now.APIVersion(), Kind: s.now.Kind(),
			Namespace: s.now.Namespace, Name: s.now.Name, ResourceVersion: s.now.ResourceVersion, Bytes: len(s.now.Raw),
		},
		Operation: o.operation.String(), Watched: s.watched, Watch: s.watch, Notes: s.notes,
	}
	key := make([]byte, 32) // a key of its own: fingerprints are of one length, and are not shown
	_, _ = rand.Read(key)
	redaction, err := assemble.RedactionWith(cfg, key)
	if err != nil {
		return nil, err
	}
	if hide := redaction.Transform(); hide != nil { // as informers do
		hide(s.resource, s.now)
		if s.old != nil {
			hide(s.resource, s.old)
		}
	}
	var parts []engine.Sink
	var needs enrich.Needs
	for n := range cfg.Sinks {
		d, err := assemble.NewDestination(&cfg.Sinks[n], nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		part := assemble.Sink(cfg, &cfg.Sinks[n], redaction, d)
		if s.api != nil {
			part.Encoder.ClusterUID = s.api.uid
		}
		needs = needs.Or(part.Enrich)
		parts = append(parts, part)
	}
	var index *enrich.Index
	if needs != (enrich.Needs{}) {
		index = enrich.New(enrich.Options{Needs: needs, Bytes: assemble.Enrichment(cfg, redaction).FactBytes})
		r.Notes = append(r.Notes, o.learn(ctx, index, s)...)
	}
	for n := range parts {
		sink, err := o.explainSink(ctx, parts[n], index, &cfg.Sinks[n], s)
		if err != nil {
			return nil, err
		}
		r.Sinks = append(r.Sinks, sink)
	}
	return r, nil
}

// explainSink runs the change through what `bridge run` sends it through.
func (o *Options) explainSink(ctx context.Context, part engine.Sink, index *enrich.Index, c *config.Sink, s *subject) (Sink, error) {
	trial, err := engine.NewTrial(part, index)
	if err != nil {
		return Sink{}, err
	}
	out := Sink{Name: part.Name, Kind: c.Kind(), Filters: judgements(trial.Filter(), s, o.operation)}
	m, err := trial.Message(ctx, engine.Change{Resource: s.resource, Type: o.operation, Old: s.old, Now: s.now, Selected: s.selected})
	if err != nil {
		return out, err
	}
	switch {
	case m == nil:
		return out, nil
	case m.Type.IsControl(): // the object could not be encoded
		out.Error = m.GapInfo.Message
		return out, nil
	}
	out.Sent = s.watched
	if out.Operation = m.Type.String(); m.LeftFilter {
		out.Operation = "left"
	}
	out.Message, out.Error = o.placed(ctx, part.Destination, m)
	if out.Message.TooLarge() {
		out.Message.Oversize = whenTooLarge(c)
	}
	return out, nil
}

// placed says where the message would go.
func (o *Options) placed(ctx context.Context, sink sinks.Sink, m *event.Message) (*Message, string) {
	out := &Message{ID: m.ID, Attributes: maps.Collect(m.Attributes), Size: int64(len(m.Body()))}
	previewer, ok := sink.(diagnose.Previewer)
	if !ok {
		return out, ""
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p, err := previewer.Preview(ctx, m, !o.Offline)
	if err != nil {
		return out, err.Error()
	}
	out.Stream, out.Subject, out.Topic, out.Key, out.Tombstone = p.Stream, p.Subject, p.Topic, p.Key, p.Tombstone
	out.Size, out.Limit = p.Size, p.Limit
	if p.Partitions > 0 {
		out.Partition, out.Partitions = &p.Partition, p.Partitions
	}
	if p.Unknown != nil {
		out.Unknown = p.Unknown.Error()
	}
	for _, h := range p.Headers {
		out.Headers = append(out.Headers, Header(h))
	}
	return out, ""
}

// judgements are what the rules say, of both states where they lie on two sides of the filter's border.
func judgements(f *filter.Filter, s *subject, operation event.Type) []Filter {
	border := f.For(s.resource)
	before, now := s.old != nil && border.Belongs(s.old), border.Belongs(s.now)
	switch {
	case operation == event.Deleted:
		return verdicts(f.Explain(s.resource, event.Deleted, nil, s.now), "")
	case operation == event.Restated:
		return verdicts(f.Explain(s.resource, event.Restated, nil, s.now), "")
	case s.old == nil:
		return verdicts(f.Explain(s.resource, event.Added, nil, s.now), "")
	case before == now:
		return verdicts(f.Explain(s.resource, event.Updated, s.old, s.now), "")
	case now:
		return append(verdicts(f.Explain(s.resource, event.Added, nil, s.old), "before"), verdicts(f.Explain(s.resource, event.Added, nil, s.now), "now")...)
	default:
		return append(verdicts(f.Explain(s.resource, event.Deleted, nil, s.old), "before"), verdicts(f.Explain(s.resource, event.Deleted, nil, s.now), "now")...)
	}
}

func verdicts(of []filter.Verdict, state string) (out []Filter) {
	for _, v := range of {
		one := Filter{Index: v.Rule, State: state, Belongs: v.Belongs, Passes: v.Sends}
		for _, c := range v.Conditions {
			condition := Condition{Field: c.Field, Text: c.Text, Found: c.Found, Holds: c.Holds}
			if c.Err != nil {
				condition.Error = c.Err.Error()
			}
			one.Conditions = append(one.Conditions, condition)
		}
		out = append(out, one)
	}
	return out
}

// whenTooLarge says what becomes of an event that is larger than the sink's destination takes.
func whenTooLarge(s *config.Sink) string {
	switch s.Oversize {
	case sinks.OutcomeMetadata:
		return "sent with the metadata of the object alone (oversize: metadata)"
	case sinks.OutcomeClaimCheck:
		return "sent with the metadata of the object alone, and its data goes to the object store " + s.ClaimCheck.Bucket
	case sinks.OutcomeDeadLetter:
		return "kept as a dead letter, and a gap event takes its place"
	}
	return "the destination refuses it, and a gap event takes its place"
}
