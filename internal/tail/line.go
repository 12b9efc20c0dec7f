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

// line renders an event as one line that ends with a newline.
func line(r *diagnose.Record, style console.Style) string {
	word, color := operation(r)
	at := moment(r).Local().Format("15:04:05.000")
	if r.Type().IsControl() {
		text := fmt.Sprintf("%-7s  %s", word, console.Clean(control(r)))
		return at + "  " + style.Paint(color, text) + "\n"
	}
	namespace, name := r.Object()
	if namespace != "" {
		name = namespace + "/" + name
	}
	text := fmt.Sprintf("%s%*s  %-20s  %-32s  %-8s  %s  %s", style.Paint(color, word), len("updated")-len(word), "",
		console.Clean(r.Resource()), console.Clean(name), console.Clean(r.Attributes["resourceversion"]),
		console.Clean(r.Attributes["changedby"]), notes(r))
	return at + "  " + strings.TrimRight(text, " ") + "\n"
}

// notes returns additional attributes of an event in parentheses. It returns an empty string if there are none.
func notes(r *diagnose.Record) string {
	var all []string
	for _, name := range []string{"initiallist", "finalstateunknown"} {
		if r.Attributes[name] == "true" {
			all = append(all, name)
		}
	}
	if why := r.Attributes["dataomitted"]; why != "" {
		text := "data omitted: " + why
		if size, err := strconv.ParseInt(r.Attributes["datasize"], 10, 64); err == nil {
			text += ", " + console.Count(size) + " bytes"
		}
		if ref := r.Attributes["dataref"]; ref != "" {
			text += " in " + ref
		}
		all = append(all, console.Clean(text))
	}
	if len(all) == 0 {
		return ""
	}
	return "(" + strings.Join(all, ", ") + ")"
}

// control renders the content of a control event.
func control(r *diagnose.Record) string {
	switch r.Type() {
	case event.Synced:
		return synced(r)
	case event.Progress:
		var info event.ProgressInfo
		if json.Unmarshal(r.Data, &info) != nil {
			return r.Resource()
		}
		at := info.AsOf.Local().Format(time.TimeOnly)
		return fmt.Sprintf("%s  %s, as of %s", info.Resource, info.ResourceVersion, at)
	}
	return gap(r)
}

func synced(r *diagnose.Record) string {
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

func gap(r *diagnose.Record) string {
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
	case event.Progress:
		return "REACHED", console.Dim
	case event.Audit:
		return "audit", console.Dim
	}
	return "SYNCED", console.Cyan
}
