package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// sink is a configured sink whose destination is not connected.
type sink struct {
	sinks.Sink
	config *config.Sink
	// checkers are the destinations that can be checked: the main one, the object store for large data, and the
	// destination for dead letters.
	checkers []diagnose.Checker
}

func newSink(s *config.Sink) (sink, error) {
	d, err := assemble.NewDestination(s, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return sink{}, err
	}
	rejections, err := d.Rejections(s)
	if err != nil {
		return sink{}, err
	}
	destinations := []any{d.Sink, rejections.Payloads}
	if letters := rejections.DeadLetters; letters != nil {
		destinations = append(destinations, letters.Sink)
	}
	out := sink{Sink: d.Sink, config: s}
	for _, destination := range destinations {
		if checker, ok := destination.(diagnose.Checker); ok {
			out.checkers = append(out.checkers, checker)
		}
	}
	return out, nil
}

// checkSinks checks all destinations concurrently.
func (e *examination) checkSinks(ctx context.Context) {
	found := make([][]diagnose.Finding, len(e.sinks))
	var group sync.WaitGroup
	for n := range e.sinks {
		group.Go(func() { found[n] = e.checkSink(ctx, &e.sinks[n]) })
	}
	group.Wait()
	for n := range e.sinks {
		e.area = "sink " + e.sinks[n].config.Name
		e.checkPaused(e.sinks[n].config.Name)
		e.add(found[n]...)
		e.checkDestination(&e.sinks[n])
	}
}

// checkPaused warns if a sink is paused.
func (e *examination) checkPaused(sink string) {
	if since := e.paused[sink]; !since.IsZero() {
		e.warn(stepPaused, "", "paused since "+since.UTC().Format(time.RFC3339)+"; the bridge sends nothing to it",
			"after the maintenance, run `bridge resume "+sink+"` beside the running bridge")
	}
}

// checkSink checks the destinations of one sink.
func (e *examination) checkSink(ctx context.Context, s *sink) (found []diagnose.Finding) {
	embedded := s.config.NATS != nil && s.config.NATS.Embedded != nil
	if embedded && e.running {
		return []diagnose.Finding{
			{Step: stepDestination, Detail: "not checked: a bridge with this embedded server is running"},
		}
	}
	for _, checker := range s.checkers {
		found = append(found, checker.Check(ctx)...)
	}
	if len(found) == 0 {
		return []diagnose.Finding{{Step: stepDestination, Detail: "nothing to check"}}
	}
	if embedded || slices.ContainsFunc(found, func(f diagnose.Finding) bool { return f.Err != nil }) {
		return found
	}
	defer func() { _ = s.Close(ctx) }()
	return append(found, e.checkName(ctx, s)...)
}

// checkDestination warns if the destination of a sink differs from the destination in the checkpoint.
func (e *examination) checkDestination(s *sink) {
	before := e.destinations[s.config.Name]
	d, ok := s.Sink.(sinks.Identified)
	if !ok || before == "" || d.Destination() == "" || d.Destination() == before {
		return
	}
	e.warn(stepDestination, d.Destination(), "the destination has changed; it was "+before+
		": the sink will send its spilled events and then an initial list of all objects",
		"no action needed if this is intended; nothing more will be sent to the previous destination")
}

// checkName reports which cluster has registered this cluster's name at the destination of a sink. It returns nil if
// the destination does not support registering names.
func (e *examination) checkName(ctx context.Context, s *sink) []diagnose.Finding {
	d, ok := s.Sink.(sinks.Identified)
	if !ok {
		return nil
	}
	owner := sinks.Owner{Cluster: e.cfg.Cluster, UID: e.cluster}
	registered, err := d.Registered(ctx, owner.Cluster)
	f := diagnose.Finding{Step: sinks.StepName, Target: owner.Cluster}
	f.Detail = fmt.Sprintf("registered by the cluster with uid %s at %s",
		registered.UID, registered.Since.UTC().Format(time.RFC3339))
	switch {
	case err != nil:
		f.Warn, f.Detail = true, "cannot read which cluster has registered this name: "+err.Error()
		f.Remedy = "allow the bridge to read the register of cluster names, or make sure that no other cluster uses this " +
			"name at the destination"
	case registered.UID == "":
		f.Detail = "no cluster has registered this name yet"
	case owner.UID == "":
		f.Warn, f.Detail = true, f.Detail+"; it is not known whether that is this cluster"
		f.Remedy = "allow the bridge to read the namespace kube-system"
	case registered.UID == owner.UID:
		f.Detail += ": this cluster"
	default:
		f = diagnose.Failed(sinks.StepName, owner.Cluster, sinks.NameTaken(d, s.config.Name, owner, registered))
	}
	return []diagnose.Finding{f}
}
