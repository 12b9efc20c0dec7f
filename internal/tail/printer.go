package tail

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/pattern"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Options configures a Printer.
type Options struct {
	Out io.Writer // receives the events
	// Notes receives messages about the reader itself, such as its lag. It may be the same writer as Out.
	Notes io.Writer
	Style console.Style

	JSON bool // print each event as one line of JSON
	Diff bool // print the changes that updates contain

	// The zero value of each of the following fields selects all events. Namespaces and Selector do not apply to control
	// events.
	Resources  pattern.Resources
	Namespaces pattern.Namespaces
	Selector   labels.Selector
}

// Printer prints records. It is not safe for concurrent use.
type Printer struct {
	Options
	states   *lru.Cache // the last state of each object as json.RawMessage, by uid
	behind   bool       // whether the last note reported a lag
	lastNote time.Time  // time of the last note
	now      func() time.Time
}

// New returns a Printer.
func New(o Options) *Printer {
	return &Printer{Options: o, states: lru.New(maxStates), now: time.Now}
}

const (
	// farBehind is the minimum number of unread messages for a note about the lag. noteInterval is the minimum time
	// between two such notes.
	farBehind    = 1000
	noteInterval = 2 * time.Second
	// maxStates is the maximum number of objects whose last state is kept for Options.Diff.
	maxStates = 1 << 14
)

// Print prints a record if the options select it. It returns only write errors.
func (p *Printer) Print(r *diagnose.Record) error {
	if err := p.noteLag(r.Behind); err != nil {
		return err
	}
	if r.Attributes == nil && r.Data == nil && r.Foreign == nil { // a tombstone; its deletion is already printed
		return nil
	}
	if r.Foreign != nil || r.Type() == 0 {
		return p.printForeign(r)
	}
	s := statesOf(r)
	if !p.selects(r, s) {
		return nil
	}
	if p.JSON {
		_, err := p.Out.Write(append(r.AppendStructured(nil), '\n'))
		return err
	}
	text := line(r, p.Style)
	switch {
	case !p.Diff:
	case r.Attributes["dataomitted"] != "": // the state is incomplete, so neither this update nor the next one can be compared
		p.states.Remove(r.Attributes["uid"])
	default:
		text += p.diff(r, s)
	}
	_, err := io.WriteString(p.Out, text)
	return err
}

// selects reports whether the options select a record.
func (p *Printer) selects(r *diagnose.Record, s *states) bool {
	version := cmp.Or(r.Attributes["apiversion"], s.metadata().APIVersion) // as an attribute or in the data
	gvr := schema.ParseGroupResource(r.Resource()).WithVersion(version[strings.LastIndexByte(version, '/')+1:])
	if len(p.Resources) > 0 && !p.Resources.Match(gvr) {
		return false
	}
	if r.Type().IsControl() {
		return true
	}
	namespace, _ := r.Object()
	return p.Namespaces.Matches(namespace) && (p.Selector == nil || p.Selector.Matches(labels.Set(s.metadata().Labels)))
}

// printForeign prints a note about a message that is not a known event. If Options.JSON is set, it prints nothing.
func (p *Printer) printForeign(r *diagnose.Record) error {
	if p.JSON {
		return nil
	}
	why := "its type is " + r.Attributes["type"]
	if r.Foreign != nil {
		why = r.Foreign.Error()
	}
	at := r.Stored.Local().Format(time.TimeOnly)
	text := fmt.Sprintf("%s  ?  %s: not an event of Deltabridge (%s)", at, r.Place, why)
	_, err := io.WriteString(p.Out, p.Style.Paint(console.Dim, console.Clean(text))+"\n")
	return err
}

// noteLag writes a note if the reader lags far behind the stream, and another note when the reader has caught up.
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
	_, err := io.WriteString(p.Notes, p.Style.Paint(console.Dim, text)+"\n")
	return err
}

// states contains the states of an object that an event's data includes, regardless of the payload type.
type states struct {
	object, old json.RawMessage // old is nil if the data does not include the previous state
}

// statesOf decodes the data of an event. An object has a `kind`, and the data of the other payloads does not. In control
// events, there is no state.
func statesOf(r *diagnose.Record) *states {
	var data struct {
		Kind          string
		Operation     string
		Object, Old   json.RawMessage // payload: change
		Before, After json.RawMessage // payload: debezium
	}
	if err := json.Unmarshal(r.Data, &data); err != nil || data.Kind != "" {
		return &states{object: r.Data}
	}
	s := &states{object: r.Data}
	switch {
	case data.Operation != "":
		s.object, s.old = data.Object, data.Old
	case data.After != nil:
		s.object, s.old = data.After, data.Before
		if isNull(data.After) { // the object is deleted
			s.object, s.old = data.Before, nil
		}
	}
	if isNull(s.old) {
		s.old = nil
	}
	return s
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

func (s *states) metadata() (object metav1.PartialObjectMetadata) {
	if json.Unmarshal(s.object, &object) != nil {
		return metav1.PartialObjectMetadata{}
	}
	return object
}
