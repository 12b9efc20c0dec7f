package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/tail"
	"github.com/deltabridge/deltabridge/pkg/pattern"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
)

// tailOptions contains the flags of `bridge tail`.
type tailOptions struct {
	config              *configFile
	sink                string
	nats, stream        string
	kafka, topic        string
	namespaces, include []string
	selector            string
	output              *output
	since               time.Duration
	diff, follow        bool
}

func newTailCommand(stdout, stderr io.Writer) *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the events in a stream or topic, and new ones as they arrive",
		Long: "tail reads events from JetStream or Kafka and prints one line for each: time, operation, resource, name,\n" +
			"resourceVersion and the manager that changed the object. Gaps and the ends of initial lists are\n" +
			"highlighted. With --diff it prints what each update changed. It does not affect other consumers: it\n" +
			"creates no durable consumer, joins no consumer group and acknowledges nothing.\n\n" +
			"It reads from the destination of a sink in the configuration, with the sink's credentials, or from the\n" +
			"servers in --nats or --kafka. A `bridge run` without a configuration has its embedded JetStream server at\n" +
			"nats://127.0.0.1:4222.",
		Example: "  bridge tail -c bridge.yaml --sink audit --since 1h\n" +
			"  bridge tail --nats nats://127.0.0.1:4222 --diff -n 'team-*' --resource deployments.apps\n" +
			"  bridge tail --kafka 127.0.0.1:9092 --topic k8s.pods -l app=web -o json --follow=false",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			printer, err := o.newPrinter(stdout, stderr)
			if err != nil {
				return usageError(err)
			}
			s, err := o.sinkConfig()
			if err != nil {
				return err
			}
			d, err := assemble.NewClient(s)
			if err != nil {
				return err
			}
			defer closeDestination(cmd.Context(), d)
			source, ok := d.Sink.(diagnose.Reader)
			if !ok {
				return fmt.Errorf("sink %s: events cannot be read back from this kind of destination", s.Name)
			}
			read := diagnose.ReadOptions{Follow: o.follow}
			if o.since > 0 {
				read.Since = time.Now().Add(-o.since)
			}
			return source.Read(cmd.Context(), read, printer.Print)
		},
	}
	flags := cmd.Flags()
	o.config = newConfigFile(flags)
	o.config.addSink(cmd, &o.sink, "`name` of the sink in the configuration to read from (default: the only one)")
	flags.StringVar(&o.nats, "nats", "", "read from the NATS servers at this `URL`, without a configuration")
	flags.StringVar(&o.stream, "stream", "K8S", "JetStream stream, with --nats")
	flags.StringVar(&o.kafka, "kafka", "", "read from these Kafka `brokers` (host:port), without a configuration")
	flags.StringVar(&o.topic, "topic", "k8s.{resource}",
		"Kafka topic, with --kafka; placeholders such as {resource} match any text")
	flags.StringSliceVarP(&o.namespaces, "namespace", "n", nil,
		"print only these namespaces; patterns as in the filters of a sink (can be repeated)")
	flags.StringSliceVar(&o.include, "resource", nil,
		"print only these `resources`, for example pods, deployments.apps or *.example.com (can be repeated)")
	flags.StringVarP(&o.selector, "selector", "l", "", "print only objects that this label selector selects")
	flags.DurationVar(&o.since, "since", 10*time.Minute, "how far back to start; 0 starts with the oldest event")
	flags.BoolVar(&o.diff, "diff", false, "print what each update changed")
	o.output = newOutput(cmd, stdout, formatLine, formatJSON)
	_ = cmd.RegisterFlagCompletionFunc("resource", o.config.completion(watchedResources)) // the flag exists
	flags.BoolVarP(&o.follow, "follow", "f", isTerminal(stdout),
		"print new events as they arrive, instead of stopping after those that exist now; the default on a terminal")
	cmd.MarkFlagsMutuallyExclusive("config", "nats", "kafka")
	return cmd
}

// sinkConfig returns the sink whose destination the command reads.
func (o *tailOptions) sinkConfig() (*config.Sink, error) {
	cfg, err := o.load()
	if err != nil {
		return nil, err
	}
	found, err := selectSinks(cfg, o.sink)
	if o.sink == "" {
		found = slices.DeleteFunc(slices.Clone(found), func(s config.Sink) bool { return s.Stdout != nil })
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, errors.New("no sink delivers to a broker: there is nothing to read")
	case len(found) > 1:
		names := strings.Join(config.SinkNames(found), ", ")
		return nil, usageError(fmt.Errorf("there are several sinks: choose one with --sink (%s)", names))
	}
	return &found[0], nil
}

// load returns the configuration from the file, or one whose only sink is described by the flags.
func (o *tailOptions) load() (*config.Config, error) {
	sink := map[string]any{"name": "tail"}
	switch {
	case o.nats != "":
		sink["nats"] = map[string]any{"url": o.nats, "stream": map[string]any{"name": o.stream}}
	case o.kafka != "":
		sink["kafka"] = map[string]any{"brokers": strings.Split(o.kafka, ","), "topic": o.topic}
	default:
		cfg, err := o.config.load()
		if errors.Is(err, errNoConfig) {
			err = fmt.Errorf("%w; or name the servers with --nats or --kafka", err)
		}
		return cfg, err
	}
	if o.sink != "" {
		return nil, usageError(errors.New("--sink requires a configuration: use --config instead of --nats or --kafka"))
	}
	text, err := json.Marshal(map[string]any{"sinks": []any{sink}}) // JSON is YAML
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse("", text)
	return cfg, usageError(err)
}

func (o *tailOptions) newPrinter(stdout, stderr io.Writer) (*tail.Printer, error) {
	options := tail.Options{
		Out: stdout, Notes: stderr, Diff: o.diff, JSON: o.output.format.value == formatJSON,
		Style: consoleStyle(stdout),
	}
	switch {
	case o.diff && options.JSON:
		return nil, errors.New("--diff requires --output line")
	case o.since < 0:
		return nil, errors.New("--since: must not be negative")
	}
	for _, text := range o.include {
		parsed, err := pattern.ParseResource(text)
		if err != nil {
			return nil, fmt.Errorf("--resource %s: %w", text, err)
		}
		options.Resources = append(options.Resources, parsed)
	}
	var err error
	if options.Namespaces, err = pattern.ParseNamespaces(o.namespaces); err != nil {
		return nil, fmt.Errorf("--namespace: %w", err)
	}
	if options.Selector, err = labels.Parse(o.selector); err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	return tail.New(options), nil
}
