package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// The results of a step.
const (
	resultOK      = "ok"
	resultWarning = "warning"
	resultFailed  = "failed"
)

// Finding is the result of one step.
type Finding struct {
	Area   string `json:"area"` // "API server", "state", "process" or "sink NAME"
	Step   string `json:"step"`
	Target string `json:"target"`
	Result string `json:"result"` // ok, warning or failed
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Report contains all findings in the order of the steps, and their number per result.
type Report struct {
	OK       int       `json:"ok"`
	Warnings int       `json:"warnings"`
	Failed   int       `json:"failed"`
	Findings []Finding `json:"findings"`
}

func (r *Report) add(area string, f *diagnose.Finding) {
	out := Finding{Area: area, Step: f.Step, Target: f.Target, Result: resultOK, Detail: f.Detail, Remedy: f.Remedy}
	switch {
	case f.Err != nil:
		r.Failed++
		out.Result, out.Error = resultFailed, f.Err.Error()
		if ce, ok := f.Err.(*sinks.ConnectError); ok { //nolint:errorlint // a wrapped error must keep its context
			out.Error = ce.Err.Error() // the finding has the step, the address and the remedy in other fields
		}
	case f.Warn:
		r.Warnings++
		out.Result = resultWarning
	default:
		r.OK++
	}
	r.Findings = append(r.Findings, out)
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
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
	report  Report
	area    string
	client  rest.Interface
	cluster string // uid of the cluster; empty if unknown
	running bool   // whether a bridge is using the state directory
	// destinations maps each sink to its destination in the checkpoint.
	destinations map[string]string
}

// Examine runs all checks and returns their findings. If ctx ends, Examine returns soon.
func Examine(ctx context.Context, o Options) *Report {
	o.Step = cmp.Or(o.Step, 10*time.Second)
	e := &examination{Options: o, area: "API server"}
	e.checkAPIServer(ctx)
	e.area = "state"
	e.checkState()
	e.area = "process"
	e.checkMemory()
	e.checkSinks(ctx)
	return &e.report
}

func (e *examination) add(f ...diagnose.Finding) {
	for n := range f {
		e.report.add(e.area, &f[n])
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
