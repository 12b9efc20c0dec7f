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

// Options say what to explain.
type Options struct {
	Old       string        // file with the previous state, for an update
	Operation string        // added, updated, deleted or restated; if empty, updated with Old and added without
	Namespace string        // namespace of the object, if neither the file nor the name has one
	Resource  string        // resource of an object from a file; if empty, the API server is asked
	Offline   bool          // do not query the API server and the destinations
	Timeout   time.Duration // limit for the API server and for each destination
	Version   string        // version of the binary

	operation event.Type
}

// check rejects options that can't be combined, and sets the operation.
func (o *Options) check(args []string) error {
	switch {
	case len(args) == 2 && o.Offline:
		return errors.New("--offline: the object must be in a file")
	case len(args) == 2 && o.Resource != "":
		return errors.New("--resource requires an object in a file")
	}
	switch name := o.Operation; name {
	case "":
		o.operation = event.Added
		if o.Old != "" {
			o.operation = event.Updated
		}
	case event.Updated.String():
		if o.operation = event.Updated; o.Old == "" {
			return errors.New("--operation updated: set --old to a file with the previous state")
		}
	case event.Added.String(), event.Deleted.String(), event.Restated.String():
		if o.Old != "" {
			return fmt.Errorf("--old: only for an update, but --operation is %s", name)
		}
		for _, t := range []event.Type{event.Added, event.Deleted, event.Restated} {
			if t.String() == name {
				o.operation = t
			}
		}
	default:
		return fmt.Errorf("--operation %s: must be added, updated, deleted or restated", name)
	}
	return nil
}

// Reports returns a report for each object that args name: either a file, where - is stdin, or a resource and the name
// of an object in the cluster.
func (o Options) Reports(ctx context.Context, cfg *config.Config, args []string, stdin io.Reader) (reports []*Report, err error) {
	if err := o.check(args); err != nil {
		return nil, err
	}
	scopes := make([]fleet.Scope, len(cfg.Watch))
	for n := range cfg.Watch {
		if scopes[n], err = assemble.NewScope(&cfg.Watch[n]); err != nil { // impossible: the configuration was validated
			return nil, err
		}
	}
	subjects, err := o.findSubjects(ctx, cfg, scopes, args, stdin)
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

// subject is an object to explain, and what is known about it.
type subject struct {
	old, now *object.Object // old is nil except for updates
	resource schema.GroupVersionResource
	watch    []Watch
	watched  bool
	selected bool // the informer that watches the object has selectors
	notes    []string
	api      *apiServer // nil if the API server can't be queried
}

func (o *Options) explain(ctx context.Context, cfg *config.Config, s *subject) (*Report, error) {
	r := &Report{
		Object: Object{
			Resource: event.GroupResource(s.resource), APIVersion: s.now.APIVersion(), Kind: s.now.Kind(),
			Namespace: s.now.Namespace, Name: s.now.Name, ResourceVersion: s.now.ResourceVersion, Bytes: len(s.now.Raw),
		},
		Operation: o.operation.String(), Watched: s.watched, Watch: s.watch, Notes: s.notes,
	}
	key := make([]byte, 32) // any key will do: fingerprints are not shown, and all have the same length
	_, _ = rand.Read(key)
	redaction, err := assemble.RedactionWith(cfg, key)
	if err != nil {
		return nil, err
	}
	if hide := redaction.Transform(); hide != nil { // informers do the same
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

// explainSink runs the change through the filters and the encoder of one sink, and asks its destination.
func (o *Options) explainSink(ctx context.Context, part engine.Sink, index *enrich.Index, c *config.Sink, s *subject) (Sink, error) {
	trial, err := engine.NewTrial(part, index)
	if err != nil {
		return Sink{}, err
	}
	out := Sink{Name: part.Name, Kind: c.Kind(), Filters: filterVerdicts(trial.Filter(), s, o.operation)}
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
	out.Message, out.Error = o.preview(ctx, part.Destination, m)
	if out.Message.TooLarge() {
		out.Message.Oversize = whenTooLarge(c)
	}
	return out, nil
}

// preview returns the message and where the destination would store it. If the destination would reject the message,
// the string is the error.
func (o *Options) preview(ctx context.Context, sink sinks.Sink, m *event.Message) (*Message, string) {
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

// filterVerdicts returns the verdict of each rule. For an update that crosses the border of the filter it returns those
// for both states.
func filterVerdicts(f *filter.Filter, s *subject, operation event.Type) []Filter {
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
		return append(
			verdicts(f.Explain(s.resource, event.Added, nil, s.old), "before"),
			verdicts(f.Explain(s.resource, event.Added, nil, s.now), "now")...)
	default:
		return append(
			verdicts(f.Explain(s.resource, event.Deleted, nil, s.old), "before"),
			verdicts(f.Explain(s.resource, event.Deleted, nil, s.now), "now")...)
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

// whenTooLarge describes what the sink does with an event that exceeds its destination's size limit.
func whenTooLarge(s *config.Sink) string {
	switch s.Oversize {
	case sinks.OutcomeMetadata:
		return "sent with only the metadata of the object (oversize: metadata)"
	case sinks.OutcomeClaimCheck:
		return "sent with only the metadata of the object, and its data is stored in the object store " + s.ClaimCheck.Bucket
	case sinks.OutcomeDeadLetter:
		return "kept as a dead letter, and replaced by a gap event"
	}
	return "rejected by the destination, and replaced by a gap event"
}
