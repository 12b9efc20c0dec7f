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

// Options say what is shown, and how.
type Options struct {
	Out io.Writer // events
	// Notes gets what is not of the stream: that the reader is behind. It may be Out.
	Notes io.Writer
	// Style is asked for each line, since a terminal's width changes.
	Style func() console.Style

	JSON bool // each event as one line of JSON instead
	Diff bool // what updates changed

	Resource  func(groupResource, version string) bool // nil: all; version may be empty
	Namespace func(namespace string) bool              // nil: all; not asked of control events
	Selector  labels.Selector                          // nil: all; not asked of control events
}

// Printer shows records. It is used by one goroutine.
type Printer struct {
	Options
	states states
	behind bool      // and said so
	said   time.Time // when
	now    func() time.Time
}

// New makes a Printer.
func New(o Options) *Printer {
	return &Printer{Options: o, states: states{limit: stateLimit}, now: time.Now}
}

const (
	// farBehind is from how many waiting messages on it is said.
	farBehind = 1000
	sayAgain  = 2 * time.Second
)

// Print shows a record, if it is asked for. An error is one of writing.
func (p *Printer) Print(r *diagnose.Record) error {
	if err := p.say(r.Behind); err != nil {
		return err
	}
	if r.Attributes == nil && r.Data == nil && r.Foreign == nil { // a tombstone, which follows its deletion
		return nil
	}
	if r.Foreign != nil || r.Type() == 0 {
		return p.foreign(r)
	}
	c := changeOf(r)
	if !p.wanted(r, c) {
		return nil
	}
	if p.JSON {
		_, err := p.Out.Write(append(r.AppendStructured(nil), '\n'))
		return err
	}
	style := p.Style()
	text := line(r, style)
	left := omitted(r)
	if left != "" && style.Width > 0 { // elsewhere it stands in the line
		text += diffIndent + style.Paint(console.Yellow, console.Cut("("+left+")", max(style.Width-len(diffIndent), 8))) + "\n"
	}
	switch {
	case !p.Diff:
	case left != "": // there is nothing to compare, nor will the next one find anything
		p.states.drop(r.Attributes["uid"])
	default:
		text += p.diff(r, c, style)
	}
	_, err := io.WriteString(p.Out, text)
	return err
}

func (p *Printer) wanted(r *diagnose.Record, c *change) bool {
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

// foreign shows a message that is no event of the bridge.
func (p *Printer) foreign(r *diagnose.Record) error {
	if p.JSON {
		return nil
	}
	why := "its type is " + r.Attributes["type"]
	if r.Foreign != nil {
		why = r.Foreign.Error()
	}
	style := p.Style()
	text := fmt.Sprintf("%s  ?  %s: no event of Deltabridge (%s)", r.Stored.Local().Format(time.TimeOnly), r.Place, why)
	_, err := io.WriteString(p.Out, style.Paint(console.Dim, console.Cut(console.Clean(text), style.Width))+"\n")
	return err
}

// say tells when the reader is far behind, and when it is not any more.
func (p *Printer) say(behind int64) error {
	var text string
	switch {
	case behind >= farBehind && p.now().Sub(p.said) >= sayAgain:
		text, p.behind, p.said = fmt.Sprintf("-- %s more in the stream --", console.Count(behind)), true, p.now()
	case behind == 0 && p.behind:
		text, p.behind = "-- up to date --", false
	default:
		return nil
	}
	_, err := io.WriteString(p.Notes, p.Style().Paint(console.Dim, text)+"\n")
	return err
}

// change is what the data of an event says, whatever the sink's payload is.
type change struct {
	object, old, patch json.RawMessage
}

// changeOf reads the data of a change. Data of payload change has the operation beside the object, which an object of
// Kubernetes does not have.
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
		c.object, c.old, c.patch = given(payload.Object), given(payload.Old), given(payload.Patch)
	}
	return c
}

// given is nil for what is null.
func given(value json.RawMessage) json.RawMessage {
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

// version of the object that an event leads to.
func version(r *diagnose.Record) string { return r.Attributes["resourceversion"] }

// moment is when the bridge saw a change, or else when the destination stored it.
func moment(r *diagnose.Record) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, r.Attributes["time"]); err == nil {
		return at
	}
	return r.Stored
}

// operation in one word for people.
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
	case event.Restated: // nothing happened
		return "again", console.Dim
	}
	return "SYNCED", console.Cyan
}
