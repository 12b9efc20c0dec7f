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

// Finding is the result of one step.
type Finding struct {
	Area string // "API server", "state", "process" or "sink NAME"
	diagnose.Finding
}

// Result returns "FAILED", "warning" or "ok".
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

// text returns the detail, the error, or both.
func (f *Finding) text() string {
	if f.Err == nil {
		return f.Detail
	}
	text := f.Err.Error()
	if ce, ok := f.Err.(*sinks.ConnectError); ok { //nolint:errorlint // a wrapped error must keep its context
		text = ce.Err.Error() // the table shows step, address and remedy separately
	}
	if f.Detail != "" {
		text = f.Detail + ": " + text
	}
	return text
}

// Report contains all findings in the order of the steps.
type Report []Finding

// Count returns the number of findings per result.
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

// NamedSink is a sink together with its name.
type NamedSink struct {
	Name string
	sinks.Sink
	// Additional contains the sink's other destinations: the object store for large data, and the destination for dead
	// letters.
	Additional []diagnose.Checker
}

// Options configures Examine.
type Options struct {
	Config *config.Config
	// Kube returns the client configuration for the API server. Examine modifies the configuration.
	Kube func() (*rest.Config, error)
	// Scopes are the scopes that the bridge watches.
	Scopes []fleet.Scope
	// Sinks must not be connected yet. If a sink does not implement [diagnose.Checker], the checks of its destination are
	// skipped.
	Sinks []NamedSink
	// Step is the time limit for each step at the API server. If it is 0, the limit is 10 seconds.
	Step time.Duration
}

// examination runs the checks and collects their findings.
type examination struct {
	Options
	report     Report
	area       string
	client     rest.Interface                       // nil if the API server is not available
	cluster    string                               // uid of the cluster; empty if unknown
	namespaced map[schema.GroupVersionResource]bool // whether a watched resource is namespaced
	running    bool                                 // whether a bridge is using the state directory
	// destinations maps each sink to its destination in the checkpoint.
	destinations map[string]string
}

// Examine runs all checks and returns their findings. If ctx ends, Examine returns soon.
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
