package doctor

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/statelog"
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
	Area   string `json:"area"` // "API server", "state", "state log", "audit" or "sink NAME"
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

// examination runs the checks and collects their findings.
type examination struct {
	cfg     *config.Config
	sinks   []sink
	log     statelog.Log // nil if there is none
	version string       // version of the binary

	report  Report
	area    string
	client  rest.Interface
	cluster string // uid of the cluster; empty if unknown
	running bool   // whether a bridge is using the state directory
	// destinations maps each sink to its destination in the checkpoint.
	destinations map[string]string
	paused       map[string]time.Time // by sink, since when it is paused
}

// Examine runs all checks of a configuration and returns their findings. It does not check the state directory if
// State.Path is empty. version is the version of the binary. If ctx ends, Examine returns soon. The error is not nil if
// the files of a sink or of the state log cannot be read.
func Examine(ctx context.Context, cfg *config.Config, version string) (*Report, error) {
	e := &examination{cfg: cfg, version: version}
	for n := range cfg.Sinks {
		s, err := newSink(&cfg.Sinks[n])
		if err != nil {
			return nil, err
		}
		e.sinks = append(e.sinks, s)
	}
	if cfg.State.Log != nil {
		var err error
		if e.log, err = assemble.Log(cfg.State.Log, slog.New(slog.DiscardHandler)); err != nil {
			return nil, err
		}
	}
	return e.run(ctx), nil
}

func (e *examination) run(ctx context.Context) *Report {
	e.area = "API server"
	e.checkAPIServer(ctx)
	if e.cfg.State.Path != "" {
		e.area = "state"
		e.checkState(ctx)
	}
	if e.log != nil {
		e.area = "state log"
		e.checkStateLog(ctx)
	}
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
