package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
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
		f := finding{
			Area:   r[n].Area,
			Step:   r[n].Step,
			Target: r[n].Target,
			Result: r[n].Result(),
			Detail: r[n].Detail,
			Remedy: r[n].Remedy,
		}
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
	// Kube returns the configuration of the client for the API server. Examine changes it.
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
	client     rest.Interface                       // nil if the API server is not available
	cluster    string                               // uid of the cluster, or empty if it is unknown
	namespaced map[schema.GroupVersionResource]bool // whether a watched resource is namespaced
	running    bool                                 // a bridge uses the state directory
	// destinations are the sinks' destinations in the checkpoint, by sink.
	destinations map[string]string
}

// Examine runs all checks and returns their findings. It returns soon after ctx ends.
func Examine(ctx context.Context, o Options) Report {
	o.Step = cmp.Or(o.Step, 10*time.Second)
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
