package tail

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// layout has the widths of the columns, in cells. 0 omits a column. A negative width -n pads to n cells and never
// truncates.
type layout struct {
	clock                              string // time format
	operation, resource, version, name int
	manager                            int
}

const (
	millis = "15:04:05.000"
	gap    = 2 // cells between columns

	narrow = 60  // narrower lines show only operation, resource and name
	wide   = 100 // from this width on, lines show milliseconds and a wider manager
	widest = 140

	operationWidth = len("updated")
)

func layoutFor(width int) layout {
	l := layout{clock: time.TimeOnly, operation: operationWidth}
	switch {
	case width <= 0: // the output is not a terminal
		return layout{clock: millis, operation: operationWidth, resource: -20, name: -32, version: -8, manager: -1}
	case width < narrow:
		rest := max(width-len(l.clock)-l.operation-3*gap, 8)
		l.resource = rest * 2 / 5
		l.name = rest - l.resource
		return l
	case width >= widest:
		l.clock, l.version, l.manager = millis, 10, 26
	case width >= wide:
		l.clock, l.version, l.manager = millis, 9, 18
	default:
		l.version, l.manager = 8, 10
	}
	rest := width - len(l.clock) - l.operation - l.version - l.manager - 5*gap
	l.resource = min(rest*9/20, 36)
	l.name = min(rest-l.resource, 72)
	return l
}

// line renders an event as one line, including the newline.
func line(r *diagnose.Record, style console.Style) string {
	l := layoutFor(style.Width)
	word, color := operation(r)
	at := moment(r).Local().Format(l.clock)
	if r.Type().IsControl() {
		text := console.Pad(word, l.operation) + "  " + console.Clean(control(r))
		if style.Width > 0 {
			text = console.Cut(text, max(style.Width-len(at)-gap, 1))
		}
		return at + "  " + style.Paint(color, text) + "\n"
	}
	name := r.Attributes["name"]
	if namespace := r.Attributes["namespace"]; namespace != "" {
		name = namespace + "/" + name
	}
	columns := []string{at, style.Paint(color, word) + strings.Repeat(" ", max(l.operation-len(word), 0))}
	for i, c := range []struct {
		text  string
		width int
	}{{r.Resource(), l.resource}, {name, l.name}, {version(r), l.version}, {r.Attributes["changedby"], l.manager}} {
		text := console.Clean(c.text)
		switch {
		case c.width > 0 && i == 0: // the end of an API group says little
			columns = append(columns, console.Pad(console.Cut(text, c.width), c.width))
		case c.width > 0:
			columns = append(columns, console.Pad(console.CutMiddle(text, c.width), c.width))
		case c.width < 0:
			columns = append(columns, console.Pad(text, -c.width))
		}
	}
	if note := notes(r); note != "" && style.Width <= 0 {
		columns = append(columns, note)
	}
	return strings.TrimRight(strings.Join(columns, "  "), " ") + "\n"
}

// notes returns additional attributes of an event. They are added to lines only if the output is not a terminal,
// because such lines have no limit.
func notes(r *diagnose.Record) string {
	var all []string
	for _, name := range []string{"initiallist", "finalstateunknown", "resent"} {
		if r.Attributes[name] == "true" {
			all = append(all, name)
		}
	}
	if text := omitted(r); text != "" {
		all = append(all, text)
	}
	if len(all) == 0 {
		return ""
	}
	return "(" + strings.Join(all, ", ") + ")"
}

// omitted describes which data an event lacks. It returns an empty string if the data is complete.
func omitted(r *diagnose.Record) string {
	why := r.Attributes["dataomitted"]
	if why == "" {
		return ""
	}
	text := "data omitted: " + why
	if size, err := strconv.ParseInt(r.Attributes["datasize"], 10, 64); err == nil {
		text += ", " + console.Count(size) + " bytes"
	}
	if ref := r.Attributes["dataref"]; ref != "" {
		text += " in " + ref
	}
	return console.Clean(text)
}

// control renders the content of a gap or synced event.
func control(r *diagnose.Record) string {
	if r.Type() == event.Synced {
		var info event.SyncedInfo
		if json.Unmarshal(r.Data, &info) != nil {
			return r.Resource()
		}
		what := "objects"
		if info.Resync {
			what = "objects re-sent"
		}
		resource := info.Resource
		if info.Namespace != "" {
			resource += " in " + info.Namespace
		}
		return fmt.Sprintf("%s  %s %s at %s", resource, console.Count(int64(info.Objects)), what, info.ResourceVersion)
	}
	var info event.GapInfo
	if json.Unmarshal(r.Data, &info) != nil {
		return r.Resource()
	}
	text := info.Resource + "  " + info.Reason
	switch {
	case info.Event != "": // the gap is a single event
		text += ", " + info.Subject + " " + info.Operation
	case info.Events > 0:
		text += fmt.Sprintf(", %s events", console.Count(info.Events))
	}
	switch {
	case info.From != "" && info.From == info.To:
		text += " at " + info.From
	case info.From != "" || info.To != "":
		text += fmt.Sprintf(", after %s and before %s", known(info.From), known(info.To))
	}
	if info.DeadLetter != "" {
		text += ", kept in " + info.DeadLetter
	}
	if info.Message != "" {
		text += ": " + info.Message
	}
	return text
}

func known(version string) string {
	if version == "" {
		return "?"
	}
	return version
}
