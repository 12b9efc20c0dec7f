package statustext

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
)

// Report is what the replicas have answered.
type Report struct {
	Replicas []control.Answer `json:"replicas"`          // in the order of control.ReadStatus
	Problem  string           `json:"problem,omitempty"` // what is wrong, in one line
}

// text is the text of a report.
type text struct {
	strings.Builder

	style console.Style
}

// line adds a line.
func (t *text) line(format string, args ...any) { t.WriteString(fmt.Sprintf(format, args...) + "\n") }

// WriteTable writes the report for people. What replicas have sent is escaped.
func (r *Report) WriteTable(w io.Writer, style console.Style) error {
	t := &text{style: style}
	leading := r.leading()
	if leading != nil {
		t.verdict(&leading.Verdict)
	}
	t.replicas(r.Replicas)
	if leading != nil {
		t.sinks(leading)
		t.sources(leading)
		t.state(leading)
		t.takeOver(leading.Replica.TakeOver)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// leading returns the status of the replica that delivers, or else of another one that has answered, or nil.
func (r *Report) leading() *control.Status {
	if len(r.Replicas) == 0 {
		return nil
	}
	return r.Replicas[0].Status
}

// color returns the color of a state.
func color(h control.Health) console.Color {
	switch h {
	case control.Healthy:
		return console.Green
	case control.Idle, control.Unknown, control.Stopping:
		return console.Dim
	case control.Waiting:
		return console.Yellow
	}
	return console.Red
}

func (t *text) verdict(v *control.Verdict) {
	t.line("%s  %s", t.style.Paint(color(v.Health), strings.ToUpper(console.Clean(string(v.Health)))),
		t.style.Paint(console.Bold, console.Clean(v.Text)))
	if v.Remedy != "" {
		t.line("    -> %s", console.Clean(v.Remedy))
	}
	t.line("")
}

// table writes aligned rows. The first row is the heading, and the first column of each other row is painted.
func (t *text) table(rows [][]string, paint func(row int) console.Color) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(w, strings.Join(row, "\t")+"\n") // a Builder returns no errors
	}
	_ = w.Flush()
	for n, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		switch {
		case n == 0:
			line = t.style.Paint(console.Bold, line)
		case paint != nil && paint(n-1) != console.Green:
			line = t.style.Paint(paint(n-1), line)
		}
		t.line("%s", line)
	}
}

func (t *text) replicas(answers []control.Answer) {
	rows := [][]string{{"REPLICA", "ROLE", "READY", "EPOCH", "BEHIND", "SINCE", "VERSION", "ADDRESS"}}
	for _, a := range answers {
		if a.Status == nil {
			rows = append(rows, []string{"-", "-", "-", "-", "-", "-", "-", a.Address + ": " + console.Clean(a.Error)})
			continue
		}
		r, epoch, behind, ready := a.Replica, "-", "-", "no"
		if r.Epoch > 0 {
			epoch = strconv.FormatUint(r.Epoch, 10)
		}
		if r.BehindCommits != nil {
			behind = strconv.Itoa(*r.BehindCommits)
		}
		if r.Ready {
			ready = "yes"
		}
		rows = append(rows, []string{
			console.Clean(r.Name), console.Clean(string(r.Role)), ready, epoch, behind, r.Since.Local().Format(time.DateTime),
			console.Clean(r.Version), a.Address,
		})
	}
	t.table(rows, func(n int) console.Color {
		if answers[n].Status == nil || !answers[n].Replica.Ready {
			return console.Yellow
		}
		return console.Green
	})
}

func (t *text) state(s *control.Status) {
	if c := s.Checkpoint; c != nil {
		log := ""
		if c.Log != "" {
			log = ", state log " + console.Clean(c.Log)
		}
		t.line("\ncheckpoint: %s, last commit %s%s", size(c.Bytes), ago(c.LastCommit, s.At), log)
		t.problem(c.Problem)
	}
	c := &s.Configuration
	if c.File == "" {
		return
	}
	use := ", not in use"
	if !c.Loaded.IsZero() {
		use = " " + console.Clean(c.Hash) + ", in use since " + c.Loaded.Local().Format(time.DateTime)
	}
	t.line("configuration: %s%s", console.Clean(c.File), use)
	t.problem(c.Error)
	if c.Waits != "" {
		t.line("  a changed file waits: %s", console.Clean(c.Waits))
	}
}

// problem writes a problem below the part that has it.
func (t *text) problem(p *control.Problem) {
	if p == nil {
		return
	}
	t.line("  %s", t.style.Paint(console.Red, console.Clean(p.Text)))
	if p.Remedy != "" {
		t.line("    -> %s", console.Clean(p.Remedy))
	}
}

// reasons of a take-over. The keys are those of election.Reason.
var reasons = map[string]string{ //nolint:gochecknoglobals // constant in all but name
	"start":    "no replica was the leader",
	"released": "the previous leader has stopped",
	"expired":  "the previous leader did not renew the Lease",
}

func (t *text) takeOver(o *control.TakeOver) {
	if o == nil {
		return
	}
	t.line("\nlast take-over: %s, %s", o.Began.Local().Format(time.DateTime),
		cmp.Or(reasons[o.Reason], console.Clean(o.Reason)))
	width := 0
	for _, step := range o.Steps {
		width = max(width, len(console.Clean(step.Name)))
	}
	for _, step := range o.Steps {
		took := time.Duration(step.Seconds * float64(time.Second)).Round(time.Millisecond)
		t.line("  %-*s  %s", width, console.Clean(step.Name), took)
	}
}
