package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Finding is the outcome of one step.
type Finding struct {
	Area string // "API server", "state", "process" or "sink NAME"
	diagnose.Finding
}

// Result returns the result of a finding in one word.
func (f *Finding) Result() string {
	switch {
	case f.Err != nil:
		return "FAILED"
	case f.Warn:
		return "warning"
	default:
		return "ok"
	}
}

// text returns what was found: the detail, the error, or both.
func (f *Finding) text() string {
	if f.Err == nil {
		return f.Detail
	}
	text := f.Err.Error()
	if ce, ok := f.Err.(*sinks.ConnectError); ok { //nolint:errorlint // if it is wrapped, its context must not be lost
		text = ce.Err.Error() // step, address and remedy have columns of their own
	}
	if f.Detail != "" {
		text = f.Detail + ": " + text
	}
	return text
}

// Report is all findings, in the order of the steps.
type Report []Finding

// Count returns the number of findings by result.
func (r Report) Count() (ok, warnings, failed int) {
	for n := range r {
		switch {
		case r[n].Err != nil:
			failed++
		case r[n].Warn:
			warnings++
		default:
			ok++
		}
	}
	return ok, warnings, failed
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	type finding struct {
		Area   string `json:"area"`
		Step   string `json:"step"`
		Target string `json:"target"`
		Result string `json:"result"` // ok, warning, failed
		Detail string `json:"detail,omitempty"`
		Error  string `json:"error,omitempty"`
		Remedy string `json:"remedy,omitempty"`
	}
	var out struct {
		OK       int       `json:"ok"`
		Warnings int       `json:"warnings"`
		Failed   int       `json:"failed"`
		Findings []finding `json:"findings"`
	}
	out.OK, out.Warnings, out.Failed = r.Count()
	for n := range r {
		f := finding{Area: r[n].Area, Step: r[n].Step, Target: r[n].Target, Result: r[n].Result(), Detail: r[n].Detail, Remedy: r[n].Remedy}
		if r[n].Err != nil {
			f.Result, f.Error = "failed", r[n].text()
		}
		out.Findings = append(out.Findings, f)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// NamedSink is a sink and its name.
type NamedSink struct {
	Name string
	sinks.Sink
	// Additional are the other destinations of the sink: its object store for large data, and that of its dead letters.
	Additional []diagnose.Checker
}

// Options say what to check.
type Options struct {
	Config *config.Config
	// Kube returns the configuration of the client for the API server.
	Kube func() (*rest.Config, error)
	// Scopes are what the bridge watches.
	Scopes []fleet.Scope
	// Sinks must not be connected yet. A sink that does not implement [diagnose.Checker] is not checked.
	Sinks []NamedSink
	// Step limits each step at the API server. 0 means 10 seconds.
	Step time.Duration
}

// examination collects findings.
type examination struct {
	Options
	report     Report
	area       string
	running    bool                                 // a bridge uses the state directory
	namespaced map[schema.GroupVersionResource]bool // whether a watched resource is namespaced
	// destinations are the sinks' destinations in the checkpoint, by sink.
	destinations map[string]string
	// cluster is the uid of the cluster, or empty if it is not known.
	cluster string
	// api is nil until the API server has answered.
	api *apiServer
}

// Examine runs all checks and returns their findings. It returns soon after ctx ends.
func Examine(ctx context.Context, o Options) Report {
	if o.Step == 0 {
		o.Step = 10 * time.Second
	}
	e := &examination{Options: o, namespaced: map[schema.GroupVersionResource]bool{}}
	e.area = "API server"
	e.checkAPIServer(ctx)
	e.area = "state"
	e.checkState(ctx)
	e.area = "process"
	e.checkProcess()
	e.checkSinks(ctx)
	return e.report
}

func (e *examination) add(f ...diagnose.Finding) {
	for _, one := range f {
		e.report = append(e.report, Finding{e.area, one})
	}
}

func (e *examination) ok(step, target, detail string) {
	e.add(diagnose.Finding{Step: step, Target: target, Detail: detail})
}

func (e *examination) warn(step, target, detail, remedy string) {
	e.add(diagnose.Finding{Step: step, Target: target, Detail: detail, Warn: true, Remedy: remedy})
}

func (e *examination) fail(step, target string, err error, remedy string) {
	e.add(diagnose.Finding{Step: step, Target: target, Err: err, Remedy: remedy})
}

// checkSinks checks all destinations at the same time.
func (e *examination) checkSinks(ctx context.Context) {
	found := make([][]diagnose.Finding, len(e.Sinks))
	each(len(e.Sinks), len(e.Sinks), func(n int) {
		if checker, ok := e.Sinks[n].Sink.(diagnose.Checker); ok {
			found[n] = checker.Check(ctx)
		}
		for _, other := range e.Sinks[n].Additional {
			found[n] = append(found[n], other.Check(ctx)...)
		}
		found[n] = append(found[n], e.checkName(ctx, &e.Sinks[n], found[n])...)
	})
	for n, s := range e.Sinks {
		e.area = "sink " + s.Name
		if found[n] == nil {
			e.ok(stepDestination, "", "nothing to check")
		}
		if e.running && e.embedded(s.Name) {
			found[n] = ignoreOwnServer(found[n])
		}
		e.add(found[n]...)
		e.checkDestination(&s)
	}
}

// checkDestination warns if a sink's destination differs from the one in the checkpoint.
func (e *examination) checkDestination(s *NamedSink) {
	before := e.destinations[s.Name]
	d, ok := s.Sink.(sinks.Identified)
	if !ok || before == "" || d.Destination() == "" || d.Destination() == before {
		return
	}
	e.warn(stepDestination, d.Destination(),
		"the destination has changed, it was "+before+": the sink will send its spilled events and then an initial list of all objects",
		"no action needed if this is intended; nothing more will be sent to the previous destination")
}

// checkName reports which cluster has registered the cluster's name at the destination of a sink. It returns nil if the
// destination has no register of names or one of its checks has failed.
func (e *examination) checkName(ctx context.Context, s *NamedSink, found []diagnose.Finding) []diagnose.Finding {
	reader, ok := s.Sink.(diagnose.NameReader)
	if !ok || e.embedded(s.Name) || slices.ContainsFunc(found, func(f diagnose.Finding) bool { return f.Err != nil }) {
		return nil
	}
	owner := sinks.Owner{Cluster: e.Config.Cluster, UID: e.cluster}
	registered, err := reader.ReadName(ctx, owner.Cluster)
	f := diagnose.Finding{Step: sinks.StepName, Target: owner.Cluster}
	since := registered.Since.UTC().Format(time.RFC3339)
	registration := fmt.Sprintf("registered by the cluster with uid %s at %s", registered.UID, since)
	switch {
	case err != nil:
		f.Warn, f.Detail = true, "cannot read which cluster has registered this name: "+err.Error()
		f.Remedy = "allow the bridge to read the names of clusters, or make sure that no other cluster uses this name there"
	case registered.UID == "":
		f.Detail = "no cluster has registered this name yet"
	case owner.UID == "":
		f.Warn, f.Detail = true, registration+"; it is not known whether that is this cluster"
		f.Remedy = "allow the bridge to read the namespace kube-system"
	case registered.UID == owner.UID:
		f.Detail = registration + ": this cluster"
	default:
		if d, ok := s.Sink.(sinks.Identified); ok {
			f = diagnose.Failed(sinks.StepName, owner.Cluster, sinks.NameTaken(d, s.Name, owner, registered))
		}
	}
	return []diagnose.Finding{f}
}

// embedded reports whether a sink has an embedded NATS server.
func (e *examination) embedded(sink string) bool {
	return slices.ContainsFunc(e.Config.Sinks, func(s config.Sink) bool {
		return s.Name == sink && s.NATS != nil && s.NATS.Embedded != nil
	})
}

// ignoreOwnServer replaces failures which show only that the running bridge already uses the files and the address of
// its embedded server.
func ignoreOwnServer(found []diagnose.Finding) []diagnose.Finding {
	for n, f := range found {
		if f.Err != nil && (f.Step == sinks.StepFiles || f.Step == sinks.StepConnect) {
			found[n] = diagnose.Finding{Step: f.Step, Target: f.Target, Detail: "in use, and a bridge is running with this state"}
		}
	}
	return found
}
