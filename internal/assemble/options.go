package assemble

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkalog"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
)

// Checkpoint returns the options with which to open the checkpoint. If the fingerprint key does not exist yet,
// Checkpoint creates it.
func Checkpoint(cfg *config.Config, log *slog.Logger) (checkpoint.Options, error) {
	redaction, err := newRedaction(cfg)
	if err != nil {
		return checkpoint.Options{}, err
	}
	return checkpoint.Options{
		Path: cfg.State.Path, ClusterName: cfg.Cluster, Privacy: redaction.Privacy, Logger: log,
	}, nil
}

// Log returns the state log. It does no I/O except that it reads the files that the configuration names.
func Log(cfg *config.StateLog, log *slog.Logger) (statelog.Log, error) {
	if c := cfg.NATS; c != nil {
		c := *c
		c.Logger = log
		return natslog.New(c), nil
	}
	c := *cfg.Kafka
	c.Logger = log
	l, err := kafkalog.New(c)
	if err != nil {
		return nil, fmt.Errorf("state.log.kafka: %w", err)
	}
	return l, nil
}

// Options builds the parts of an engine, except its Store and Metrics. version is that of the bridge. Options reads the
// files that the configuration names. If the fingerprint key does not exist yet, Options creates it.
func Options(
	cfg *config.Config, kube *rest.Config, version string, log *slog.Logger,
) (o engine.Options, err error) {
	kube = rest.CopyConfig(kube)
	kube.UserAgent = "deltabridge/" + version
	o = engine.Options{
		Cluster: cfg.Cluster, State: cfg.State.Path, ShutdownTimeout: cfg.ShutdownTimeout,
		Kube: kube, Logger: log,
	}
	if l := cfg.State.Log; l != nil && l.NATS != nil {
		o.LogPlace = strings.Join(l.NATS.URLs, ",") + ", stream " + l.NATS.Stream.Name
	} else if l != nil {
		o.LogPlace = strings.Join(l.Kafka.Brokers, ",") + ", topic " + l.Kafka.Topic
	}
	redaction, err := newRedaction(cfg)
	if err != nil {
		return o, err
	}
	o.Transform, o.Enrichment = redaction.Transform(), Enrichment(cfg, redaction)
	watch, err := json.Marshal(cfg.Watch)
	if err != nil {
		return o, err
	}
	o.Watch = string(watch)
	o.Scopes = Watched(cfg)
	prober := &reach.Prober{}
	for n := range cfg.Sinks {
		s := &cfg.Sinks[n]
		o.ManagedFields = o.ManagedFields || s.Payload == event.PayloadChange
		d, err := NewDestination(s, prober, log.With("sink", s.Name))
		if err != nil {
			return o, err
		}
		sink := Sink(cfg, s, redaction, d)
		if sink.Rejections, err = d.Rejections(s); err != nil {
			return o, err
		}
		o.Sinks = append(o.Sinks, sink)
	}
	return o, nil
}

// Rehearsal builds the parts of a rehearsal, except its Time and Deliver, and the function that changes each object
// that is read. It leaves out sinks that are sent audit events. Fingerprints of secret values have a fixed key,
// and <installation> stands for the random name of the installation.
func Rehearsal(cfg *config.Config) (
	o engine.RehearsalOptions, transform func(schema.GroupVersionResource, *object.Object), err error,
) {
	redaction, err := redactionWith(cfg, bytes.Repeat([]byte("key "), 8))
	if err != nil {
		return o, nil, err
	}
	o.Enrichment = Enrichment(cfg, redaction)
	o.Awaited = nil // all objects are listed before the first change
	for n := range cfg.Sinks {
		s := &cfg.Sinks[n]
		if s.IsAudit() {
			continue
		}
		d, err := NewDestination(s, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return o, nil, err
		}
		if sink, ok := d.Sink.(sinks.Resumer); ok { // as in the engine
			sink.Resume(sinks.Resume{Writer: "<installation>/" + s.Name})
		}
		o.Sinks = append(o.Sinks, Sink(cfg, s, redaction, d))
	}
	return o, redaction.Transform(), nil
}

// Sink builds the filter, encoder and buffer options of a sink. It does not set Rejections, which defines how rejected
// messages are handled.
func Sink(cfg *config.Config, s *config.Sink, r *Redaction, d *Destination) engine.Sink {
	return engine.Sink{
		Name: s.Name, Kind: s.Kind(), Place: s.Destination().Describe(), Seen: seen(r.ForSink(s)),
		Destination: d.Sink, Disconnect: d.Close, Resync: s.Resync,
		Progress: s.Progress,
		Enrich:   s.Enrich, Rules: s.Filters, Audit: s.IsAudit(),
		Encoder: &event.Encoder{
			Cluster: cfg.Cluster, Payload: s.Payload, Content: s.Content, Redactor: r.ForSink(s),
			PartitionKey: d.Key,
		},
		Buffer: delivery.Buffer{
			Events:    s.Buffer.Events,
			Bytes:     s.Buffer.Bytes,
			DiskBytes: s.Buffer.Spill.MaxBytes,
			Overflow:  s.Buffer.Overflow,
		},
	}
}

// Enrichment returns the configuration of the enrichment index. The facts in the index are read from objects whose
// secret values are replaced with fingerprints, so every sink may receive them.
func Enrichment(cfg *config.Config, r *Redaction) engine.Enrichment {
	e := engine.Enrichment{FactBytes: seen(r.Redactor), Awaited: map[string]bool{}}
	for _, w := range cfg.Auxiliary() {
		for _, resource := range w.Resources {
			e.Awaited[resource] = true
		}
	}
	return e
}

// Places returns, for each sink name, the template of the topic or subject that user-facing messages show for an event.
// It is nil for a sink that sends all messages to the same place.
func Places(cfg *config.Config) map[string]*event.Template {
	places := map[string]*event.Template{}
	for n := range cfg.Sinks {
		places[cfg.Sinks[n].Name] = cfg.Sinks[n].Destination().Place()
	}
	return places
}
