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
	Area string // what the step belongs to: "API server", "state", "process", "sink NAME"
	diagnose.Finding
}

// Result of a finding in one word.
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

// text is what was found, for people.
func (f *Finding) text() string {
	if f.Err == nil {
		return f.Detail
	}
	text := f.Err.Error()
	if ce, ok := f.Err.(*sinks.ConnectError); ok { //nolint:errorlint // wrapped, it would lack what is around it
		text = ce.Err.Error() // step, address and remedy stand in columns of their own
	}
	if f.Detail != "" {
		text = f.Detail + ": " + text
	}
	return text
}

// Report is all findings, in the order of the steps.
type Report []Finding

// Count gives how many findings there are of each kind.
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
	// Besides are other destinations that it needs: for claims, or dead letters.
	Besides []diagnose.Checker
}

// Options are what to try.
type Options struct {
	Config *config.Config
	// Kube finds the way to the API server.
	Kube func() (*rest.Config, error)
	// Scopes are what is watched.
	Scopes []fleet.Scope
	// Sinks are not connected. Those that are no [diagnose.Checker] have nothing that could fail.
	Sinks []NamedSink
	// Step bounds a single step at the API server. Zero: 10 seconds.
	Step time.Duration
}

// examination collects findings.
type examination struct {
	Options
	report     Report
	area       string
	running    bool                                 // a bridge uses the state folder
	namespaced map[schema.GroupVersionResource]bool // of what is watched
	// destinations are those that the checkpoint knows, by sink.
	destinations map[string]string
	// cluster is the uid of the cluster; empty if it is not known.
	cluster string
	// api is nil until the API server was reached.
	api *apiServer
}

// Examine tries everything. It returns soon after ctx ends.
func Examine(ctx context.Context, o Options) Report {
	if o.Step == 0 {
		o.Step = 10 * time.Second
	}
	e := &examination{Options: o, namespaced: map[schema.GroupVersionResource]bool{}}
	e.area = "API server"
	e.apiServer(ctx)
	e.area = "state"
	e.state(ctx)
	e.area = "process"
	e.process()
	e.sinks(ctx)
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

// sinks tries all destinations at once.
func (e *examination) sinks(ctx context.Context) {
	found := make([][]diagnose.Finding, len(e.Sinks))
	each(len(e.Sinks), len(e.Sinks), func(n int) {
		if checker, ok := e.Sinks[n].Sink.(diagnose.Checker); ok {
			found[n] = checker.Check(ctx)
		}
		for _, other := range e.Sinks[n].Besides {
			found[n] = append(found[n], other.Check(ctx)...)
		}
		found[n] = append(found[n], e.name(ctx, &e.Sinks[n], found[n])...)
	})
	for n, s := range e.Sinks {
		e.area = "sink " + s.Name
		if found[n] == nil {
			e.ok(stepDestination, "", "nothing to try")
		}
		if e.running && e.embedded(s.Name) {
			found[n] = takenByItself(found[n])
		}
		e.add(found[n]...)
		e.destination(&s)
	}
}

// destination says what a sink will be sent because it points to another destination than before.
func (e *examination) destination(s *NamedSink) {
	before := e.destinations[s.Name]
	d, ok := s.Sink.(sinks.Identified)
	if !ok || before == "" || d.Destination() == "" || d.Destination() == before {
		return
	}
	e.warn(stepDestination, d.Destination(), "it is another one than before ("+before+"): it will be sent what was spilled, and then everything "+
		"that exists, as an initial list", "nothing, if that is what you want; the old destination is sent nothing more")
}

// name says to whom the cluster's name belongs at the destination of a sink, if nothing was found wrong there.
func (e *examination) name(ctx context.Context, s *NamedSink, found []diagnose.Finding) []diagnose.Finding {
	reader, ok := s.Sink.(diagnose.NameReader)
	if !ok || e.embedded(s.Name) || slices.ContainsFunc(found, func(f diagnose.Finding) bool { return f.Err != nil }) {
		return nil
	}
	owner := sinks.Owner{Cluster: e.Config.Cluster, UID: e.cluster}
	registered, err := reader.ReadName(ctx, owner.Cluster)
	f := diagnose.Finding{Step: sinks.StepName, Target: owner.Cluster}
	belongs := fmt.Sprintf("it belongs to the cluster with the uid %s, since %s", registered.UID, registered.Since.UTC().Format(time.RFC3339))
	switch {
	case err != nil:
		f.Warn, f.Detail = true, "to whom it belongs is not known: "+err.Error()
		f.Remedy = "allow the bridge to read the names of clusters, or make sure that no other cluster writes there under this one"
	case registered.UID == "":
		f.Detail = "no cluster has written under it"
	case owner.UID == "":
		f.Warn, f.Detail, f.Remedy = true, belongs+"; whether that is this one is not known", "allow the bridge to read the namespace kube-system"
	case registered.UID == owner.UID:
		f.Detail = belongs + ": this one"
	default:
		if d, ok := s.Sink.(sinks.Identified); ok {
			f = diagnose.Failed(sinks.StepName, owner.Cluster, sinks.NameTaken(d, s.Name, owner, registered))
		}
	}
	return []diagnose.Finding{f}
}

func (e *examination) embedded(sink string) bool {
	return slices.ContainsFunc(e.Config.Sinks, func(s config.Sink) bool {
		return s.Name == sink && s.NATS != nil && s.NATS.Embedded != nil
	})
}

// takenByItself excuses what an embedded server finds taken, because the running bridge has it.
func takenByItself(found []diagnose.Finding) []diagnose.Finding {
	for n, f := range found {
		if f.Err != nil && (f.Step == sinks.StepFiles || f.Step == sinks.StepConnect) {
			found[n] = diagnose.Finding{Step: f.Step, Target: f.Target, Detail: "is in use, and a bridge runs with this state"}
		}
	}
	return found
}
