package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/explain"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// explainOptions are the flags of `bridge explain`.
type explainOptions struct {
	path, output        string
	old, operation      string
	namespace, resource string
	offline             bool
	timeout             time.Duration
}

func newExplainCommand(stdout io.Writer) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain (FILE | RESOURCE [NAMESPACE/]NAME)",
		Short: "Say what each sink would be sent of an object, where to, and why",
		Long: "explain takes an object, from a file (YAML or JSON, - for standard input) or as the cluster of the kubeconfig has it\n" +
			"now, and says which entry of `watch` covers it, what each filter of each sink makes of it, and which message would go\n" +
			"where: id, subject or topic, key and partition, headers, and size against what the destination takes.\n\n" +
			"It goes the way of run, by the same code, and sends and changes nothing. It asks the API server what the resource of a\n" +
			"file is called, and the destinations for partitions and limits; with --offline it asks nobody.",
		Example: "  bridge explain -c bridge.yaml web.yaml\n" +
			"  bridge explain -c bridge.yaml pods default/web\n" +
			"  bridge explain -c bridge.yaml deployments.apps shop/web --operation deleted\n" +
			"  bridge explain -c bridge.yaml now.yaml --old before.yaml -o json",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			cfg, err := loadConfig(o.path)
			if err != nil {
				return err
			}
			klog.SetLogger(logr.Discard())
			ctx, cancel := untilSignal(cmd.Context(), slog.New(slog.DiscardHandler))
			defer cancel()
			return o.run(ctx, cfg, args, cmd.InOrStdin(), stdout)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.path, "config", "c", "", "configuration `file`")
	_ = cmd.MarkFlagRequired("config")
	flags.StringVar(&o.old, "old", "", "`file` with the state before, for an update")
	flags.StringVar(&o.operation, "operation", "", "added, updated, deleted or restated (default: updated with --old, else added)")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the object, if it is not given with it")
	flags.StringVar(&o.resource, "resource", "", "`resource` of the object in the file, as in deployments.apps (default: what the API server says)")
	flags.BoolVar(&o.offline, "offline", false, "ask neither the API server nor the destinations")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long the API server, and each destination, may take")
	flags.StringVarP(&o.output, "output", "o", "table", "`format`: table or json")
	return cmd
}

func (o *explainOptions) check(args []string) error {
	switch {
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("--output %s: want table or json", o.output)
	case len(args) == 2 && o.offline:
		return errors.New("--offline: the object has to be in a file")
	case len(args) == 2 && o.resource != "":
		return errors.New("--resource is for an object in a file")
	}
	switch o.operation {
	case "":
		o.operation = event.Added.String()
		if o.old != "" {
			o.operation = event.Updated.String()
		}
	case event.Updated.String():
		if o.old == "" {
			return errors.New("--operation updated: give the state before with --old")
		}
	case event.Added.String(), event.Deleted.String(), event.Restated.String():
		if o.old != "" {
			return fmt.Errorf("--old is for an update, and --operation is %s", o.operation)
		}
	default:
		return fmt.Errorf("--operation %s: want added, updated, deleted or restated", o.operation)
	}
	return nil
}

func (o *explainOptions) run(ctx context.Context, cfg *config.Config, args []string, stdin io.Reader, stdout io.Writer) error {
	scopes := make([]informer.Scope, len(cfg.Watch))
	for n := range cfg.Watch {
		scope, err := newScope(&cfg.Watch[n])
		if err != nil { // the configuration was checked, so there is none
			return err
		}
		scopes[n] = scope
	}
	subjects, err := o.subjects(ctx, cfg, scopes, args, stdin)
	if err != nil {
		return err
	}
	for n, s := range subjects {
		report, err := o.explain(ctx, cfg, s)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return errors.New("interrupted")
		case o.output == "json":
			err = report.WriteJSON(stdout)
		default:
			if n > 0 {
				_, _ = fmt.Fprintln(stdout) // the next write tells
			}
			err = report.WriteTable(stdout, consoleStyle(stdout))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subject is one object to be explained, and what is known of it.
type subject struct {
	old, now *object.Object // old is nil but for updates
	resource schema.GroupVersionResource
	watch    []explain.Watch
	watched  bool
	selected bool // the API server selects the objects of the informer that watches it
	notes    []string
	api      *apiServer // nil: it can't be asked
}

func (o *explainOptions) explain(ctx context.Context, cfg *config.Config, s *subject) (*explain.Report, error) {
	r := &explain.Report{
		Object: explain.Object{
			Resource: event.GroupResource(s.resource), APIVersion: s.now.APIVersion(), Kind: s.now.Kind(),
			Namespace: s.now.Namespace, Name: s.now.Name, ResourceVersion: s.now.ResourceVersion, Bytes: len(s.now.Raw),
		},
		Operation: o.operation, Watched: s.watched, Watch: s.watch, Notes: s.notes,
	}
	key := make([]byte, 32) // a key of its own: fingerprints are of one length, and are not shown
	_, _ = rand.Read(key)
	redaction, err := redactionWith(cfg, key)
	if err != nil {
		return nil, err
	}
	if hide := redaction.transform(); hide != nil { // as informers do
		hide(s.resource, s.now)
		if s.old != nil {
			hide(s.resource, s.old)
		}
	}
	enrichment := newEnrichment(ctx, cfg, redaction.redactor)
	if enrichment != nil {
		r.Notes = append(r.Notes, o.learn(ctx, enrichment, s)...)
	}
	for n := range cfg.Sinks {
		config := &cfg.Sinks[n]
		p := &pipeline{name: config.Name, metrics: newMetrics().forSink(config.Name), log: slog.New(slog.DiscardHandler), settle: func(*event.Message) {}}
		if err := p.compose(cfg, config, redaction.forSink(config), object.Slots); err != nil { // beyond the slots: nothing is remembered
			return nil, err
		}
		p.enrich = enrichment.forSink(config)
		if s.api != nil {
			p.encoder.ClusterUID = s.api.uid
		}
		r.Sinks = append(r.Sinks, o.explainSink(ctx, p, config, s))
	}
	return r, nil
}

// memoryQueue is a queue that has no file.
type memoryQueue struct{ fifo.Queue[*event.Message] }

func (memoryQueue) Run(context.Context) error { return nil }
func (memoryQueue) Persist()                  {}
func (memoryQueue) SpillStats() (items, bytes, fileBytes, errors int64, lastErr string) {
	return 0, 0, 0, 0, ""
}

// explainSink runs the change through the listener of `bridge run`, into a queue of its own.
func (o *explainOptions) explainSink(ctx context.Context, p *pipeline, c *config.Sink, s *subject) explain.Sink {
	out := explain.Sink{Name: p.name, Kind: kindOf(c), Filters: judgements(p.filter, s, o.operation)}
	p.queue = memoryQueue{fifo.NewRing(fifo.RingOptions[*event.Message]{MaxItems: 8})}
	source := informer.Source{Name: "explain", Resource: s.resource}
	if s.selected {
		source.LabelSelector = "selected" // what it selects was decided before: that it does is what counts
	}
	ledger := checkpoint.NewLedger(checkpoint.Source{}, checkpoint.State{}, []string{p.name}, 0)
	l := newListener(ctx, p, source, p.filter.For(s.resource), ledger, "")
	switch {
	case l.filter.Never():
	case o.operation == event.Added.String():
		l.OnAdd(s.now, false)
	case o.operation == event.Updated.String():
		l.OnUpdate(s.old, s.now)
	case o.operation == event.Restated.String():
		(&restating{listener: l}).OnRestate(s.now)
	default:
		l.OnDelete(s.now)
	}
	if p.queue.Stats().Items == 0 {
		return out
	}
	batch, err := p.queue.Take(ctx, nil, 1, 1<<40)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	m := batch[0]
	if m.Type.IsControl() { // the object could not be encoded
		out.Error = m.GapInfo.Message
		return out
	}
	out.Sent = s.watched
	if out.Operation = m.Type.String(); m.LeftFilter {
		out.Operation = "left"
	}
	out.Message, out.Error = o.placed(ctx, p.sink, m)
	if out.Message.TooLarge() {
		out.Message.Oversize = whenTooLarge(c)
	}
	return out
}

// placed says where the message would go.
func (o *explainOptions) placed(ctx context.Context, sink sinks.Sink, m *event.Message) (*explain.Message, string) {
	out := &explain.Message{ID: m.ID, Attributes: maps.Collect(m.Attributes), Size: int64(len(m.Body()))}
	previewer, ok := sink.(sinks.Previewer)
	if !ok {
		return out, ""
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	p, err := previewer.Preview(ctx, m, !o.offline)
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
		out.Headers = append(out.Headers, explain.Header(h))
	}
	return out, ""
}

// judgements are what the rules say, of both states where they lie on two sides of the filter's border.
func judgements(f *filter.Filter, s *subject, operation string) []explain.Filter {
	border := f.For(s.resource)
	before, now := s.old != nil && border.Belongs(s.old), border.Belongs(s.now)
	switch {
	case operation == event.Deleted.String():
		return verdicts(f.Explain(s.resource, event.Deleted, nil, s.now), "")
	case operation == event.Restated.String():
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

func verdicts(of []filter.Verdict, state string) (out []explain.Filter) {
	for _, v := range of {
		one := explain.Filter{Index: v.Rule, State: state, Belongs: v.Belongs, Passes: v.Sends}
		for _, c := range v.Conditions {
			condition := explain.Condition{Field: c.Field, Text: c.Text, Found: c.Found, Holds: c.Holds}
			if c.Err != nil {
				condition.Error = c.Err.Error()
			}
			one.Conditions = append(one.Conditions, condition)
		}
		out = append(out, one)
	}
	return out
}

func kindOf(s *config.Sink) string {
	switch {
	case s.NATS != nil:
		return "nats"
	case s.Kafka != nil:
		return "kafka"
	}
	return "stdout"
}
