package tail

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Options say what to print, and how.
type Options struct {
	Out io.Writer // gets the events
	// Notes gets messages about the reader itself, such as how far it is behind. It may be the same writer as Out.
	Notes io.Writer
	// Style is called for each line, because the width of a terminal can change.
	Style func() console.Style

	JSON bool // print each event as a line of JSON
	Diff bool // print what updates changed

	Resource  func(groupResource, version string) bool // nil selects all; version may be empty
	Namespace func(namespace string) bool              // nil selects all; not called for control events
	Selector  labels.Selector                          // nil selects all; not applied to control events
}

// Printer prints records. It is not safe for concurrent use.
type Printer struct {
	Options
	states   states
	behind   bool      // the last note said that the reader is behind
	lastNote time.Time // when that note was written
	now      func() time.Time
}

// New returns a Printer.
func New(o Options) *Printer {
	return &Printer{Options: o, states: states{limit: stateLimit}, now: time.Now}
}

const (
	// farBehind is the number of unread messages from which on a note is written, noteInterval the time between notes.
	farBehind    = 1000
	noteInterval = 2 * time.Second
)

// Print prints a record if it is selected. It returns only errors of the writers.
func (p *Printer) Print(r *diagnose.Record) error {
	if err := p.noteLag(r.Behind); err != nil {
		return err
	}
	if r.Attributes == nil && r.Data == nil && r.Foreign == nil { // a tombstone: the deletion before it was printed
		return nil
	}
	if r.Foreign != nil || r.Type() == 0 {
		return p.printForeign(r)
	}
	c := changeOf(r)
	if !p.selects(r, c) {
		return nil
	}
	if p.JSON {
		_, err := p.Out.Write(append(r.AppendStructured(nil), '\n'))
		return err
	}
	style := p.Style()
	text := line(r, style)
	left := omitted(r)
	if left != "" && style.Width > 0 { // without a terminal it is in the line itself
		text += diffIndent + style.Paint(console.Yellow, console.Cut("("+left+")", max(style.Width-len(diffIndent), 8))) + "\n"
	}
	switch {
	case !p.Diff:
	case left != "": // the state is incomplete, so neither this update nor the next one can be compared
		p.states.drop(r.Attributes["uid"])
	default:
		text += p.diff(r, c, style)
	}
	_, err := io.WriteString(p.Out, text)
	return err
}

// selects reports whether the options select a record.
func (p *Printer) selects(r *diagnose.Record, c *change) bool {
	version := r.Attributes["apiversion"]
	version = version[strings.LastIndexByte(version, '/')+1:]
	if p.Resource != nil && !p.Resource(r.Resource(), version) {
		return false
	}
	if r.Type().IsControl() {
		return true
	}
	if p.Namespace != nil && !p.Namespace(r.Attributes["namespace"]) {
		return false
	}
	return p.Selector == nil || p.Selector.Matches(c.labels())
}

// printForeign prints a note about a message that is not an event of the bridge. With Options.JSON it prints nothing.
func (p *Printer) printForeign(r *diagnose.Record) error {
	if p.JSON {
		return nil
	}
	why := "its type is " + r.Attributes["type"]
	if r.Foreign != nil {
		why = r.Foreign.Error()
	}
	style := p.Style()
	text := fmt.Sprintf("%s  ?  %s: not an event of Deltabridge (%s)", r.Stored.Local().Format(time.TimeOnly), r.Place, why)
	_, err := io.WriteString(p.Out, style.Paint(console.Dim, console.Cut(console.Clean(text), style.Width))+"\n")
	return err
}

// noteLag writes a note when the reader is far behind the stream, and when it has caught up.
func (p *Printer) noteLag(behind int64) error {
	var text string
	switch {
	case behind >= farBehind && p.now().Sub(p.lastNote) >= noteInterval:
		text, p.behind, p.lastNote = fmt.Sprintf("-- %s more in the stream --", console.Count(behind)), true, p.now()
	case behind == 0 && p.behind:
		text, p.behind = "-- up to date --", false
	default:
		return nil
	}
	_, err := io.WriteString(p.Notes, p.Style().Paint(console.Dim, text)+"\n")
	return err
}

// change is the data of an event, independent of the sink's payload.
type change struct {
	object, old, patch json.RawMessage
}

// changeOf decodes the data of an event. Data of the payload `change` has an `operation` and no `kind`; that of the
// payload `object` has a `kind`.
func changeOf(r *diagnose.Record) *change {
	c := &change{object: r.Data}
	if r.Type().IsControl() {
		return c
	}
	var payload struct {
		Operation string          `json:"operation"`
		Kind      string          `json:"kind"`
		Object    json.RawMessage `json:"object"`
		Old       json.RawMessage `json:"old"`
		Patch     json.RawMessage `json:"patch"`
	}
	if err := json.Unmarshal(r.Data, &payload); err == nil && payload.Kind == "" && payload.Operation != "" {
		c.object, c.old, c.patch = nullToNil(payload.Object), nullToNil(payload.Old), nullToNil(payload.Patch)
	}
	return c
}

// nullToNil returns nil for a JSON null, and other values unchanged.
func nullToNil(value json.RawMessage) json.RawMessage {
	if string(value) == "null" {
		return nil
	}
	return value
}

func (c *change) labels() labels.Set {
	var doc struct {
		Metadata struct {
			Labels labels.Set `json:"labels"`
		} `json:"metadata"`
	}
	for _, state := range []json.RawMessage{c.object, c.old} {
		if len(state) > 0 && json.Unmarshal(state, &doc) == nil {
			break
		}
	}
	return doc.Metadata.Labels
}

// version returns the resourceVersion of the state that an event reports.
func version(r *diagnose.Record) string { return r.Attributes["resourceversion"] }

// moment returns the event's time or, if it has none, when the destination stored it.
func moment(r *diagnose.Record) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, r.Attributes["time"]); err == nil {
		return at
	}
	return r.Stored
}

// operation returns the word and the color that show what happened.
func operation(r *diagnose.Record) (word string, color console.Color) {
	switch r.Type() {
	case event.Added:
		if r.Attributes["initiallist"] == "true" {
			return "added", console.Dim
		}
		return "added", console.Green
	case event.Updated:
		return "updated", console.Yellow
	case event.Deleted:
		if r.Attributes["leftfilter"] == "true" {
			return "left", console.Purple
		}
		return "deleted", console.Red
	case event.Gap:
		return "GAP", console.Alarm
	case event.Restated: // not a change
		return "again", console.Dim
	}
	return "SYNCED", console.Cyan
}
