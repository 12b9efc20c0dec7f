package tail

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// layout contains the widths of the columns, in cells. A width of 0 omits the column. A negative width -n pads the
// column to n cells without truncating it.
type layout struct {
	clock                            string // time format
	resource, name, version, manager int
}

const (
	millis         = "15:04:05.000"
	gap            = 2 // cells between columns
	operationWidth = len("updated")

	narrow = 60  // the minimum width for all columns; narrower lines contain only time, operation, resource and name
	wide   = 120 // the minimum width for milliseconds and a wider manager column
)

func layoutFor(width int) layout {
	l, gaps := layout{clock: time.TimeOnly, version: 8, manager: 10}, 5*gap
	switch {
	case width <= 0: // the output is not a terminal
		return layout{clock: millis, resource: -20, name: -32, version: -8, manager: -1}
	case width < narrow:
		l.version, l.manager, gaps = 0, 0, 3*gap
	case width >= wide:
		l.clock, l.version, l.manager = millis, 10, 26
	}
	rest := max(width-len(l.clock)-operationWidth-l.version-l.manager-gaps, 8)
	l.resource = min(rest*9/20, 36)
	l.name = min(rest-l.resource, 72)
	return l
}

// line renders an event as one line that ends with a newline.
func line(r *diagnose.Record, style console.Style) string {
	l := layoutFor(style.Width)
	word, color := operation(r)
	at := moment(r).Local().Format(l.clock)
	if r.Type().IsControl() {
		text := console.Pad(word, operationWidth) + "  " + console.Clean(control(r))
		if style.Width > 0 {
			text = console.Cut(text, max(style.Width-len(at)-gap, 1))
		}
		return at + "  " + style.Paint(color, text) + "\n"
	}
	name := r.Attributes["name"]
	if namespace := r.Attributes["namespace"]; namespace != "" {
		name = namespace + "/" + name
	}
	columns := []string{
		at, style.Paint(color, word) + strings.Repeat(" ", max(operationWidth-len(word), 0)),
		column(r.Resource(), l.resource, console.Cut), // the end of an API group is the least important part
		column(name, l.name, console.CutMiddle),
		column(r.Attributes["resourceversion"], l.version, console.CutMiddle),
		column(r.Attributes["changedby"], l.manager, console.CutMiddle),
	}
	if note := notes(r); note != "" && style.Width <= 0 {
		columns = append(columns, note)
	}
	return strings.TrimRight(strings.Join(columns, "  "), " ") + "\n"
}

// column pads or truncates a text to the given column width.
func column(text string, width int, truncate func(string, int) string) string {
	text = console.Clean(text)
	switch {
	case width == 0:
		return ""
	case width < 0:
		return console.Pad(text, -width)
	}
	return console.Pad(truncate(text, width), width)
}

// notes returns additional attributes of an event. They appear only if the output is not a terminal, because such lines
// have no maximum width.
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

// omitted describes the data that an event lacks. It returns an empty string if the data is complete.
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

// control renders the content of a gap event or synced event.
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
	case info.Event != "": // the gap consists of a single event
		text += ", " + info.Subject + " " + info.Operation
	case info.Events > 0:
		text += fmt.Sprintf(", %s events", console.Count(info.Events))
	}
	switch {
	case info.From != "" && info.From == info.To:
		text += " at " + info.From
	case info.From != "" || info.To != "":
		text += fmt.Sprintf(", after %s and before %s", cmp.Or(info.From, "?"), cmp.Or(info.To, "?"))
	}
	if info.DeadLetter != "" {
		text += ", kept in " + info.DeadLetter
	}
	if info.Message != "" {
		text += ": " + info.Message
	}
	return text
}

// moment returns the time of the event. If the event has no time, moment returns the time at which the destination
// stored the event.
func moment(r *diagnose.Record) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, r.Attributes["time"]); err == nil {
		return at
	}
	return r.Stored
}

// operation returns the word and the color for the operation of an event.
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
	case event.Restated: // restated events are not changes
		return "again", console.Dim
	}
	return "SYNCED", console.Cyan
}
