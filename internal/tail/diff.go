package tail

import (
	"encoding/json"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const diffIndent = "    "

// diff returns the changes that an update contains, one per line, and remembers the new state. For other events it
// returns an empty string.
func (p *Printer) diff(r *diagnose.Record, s *states) string {
	if r.Type().IsControl() || r.Type() == event.Audit {
		return ""
	}
	uid := r.Attributes["uid"]
	known, _ := p.states.Get(uid)
	before, _ := known.(json.RawMessage)
	if r.Type() == event.Deleted {
		p.states.Remove(uid)
	} else {
		p.states.Add(uid, s.object)
	}
	if r.Type() != event.Updated {
		return ""
	}
	if s.old != nil {
		before = s.old
	}
	if before == nil {
		return diffIndent + p.Style.Paint(console.Dim, "(previous state unknown)") + "\n"
	}
	var b strings.Builder
	for _, change := range jsonpatch.Diff(before, s.object) {
		path := change.Pointer()
		if path == "/metadata/resourceVersion" { // the event's line already shows the resourceVersion
			continue
		}
		writeChange(&b, path, change.Old, change.Value, p.Style)
	}
	return b.String()
}

// writeChange writes the removed and the added value at one path. For multi-line strings, it writes only the lines that
// differ.
func writeChange(b *strings.Builder, path string, old, now json.RawMessage, style console.Style) {
	before, isText := textLines(old)
	after, stillText := textLines(now)
	if isText && stillText && len(before)+len(after) > 2 {
		diffLine(b, console.Cyan, "@ "+path, style)
		for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
			before, after = before[1:], after[1:]
		}
		for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
			before, after = before[:len(before)-1], after[:len(after)-1]
		}
		for _, text := range before {
			diffLine(b, console.Red, "- "+text, style)
		}
		for _, text := range after {
			diffLine(b, console.Green, "+ "+text, style)
		}
		return
	}
	if old != nil {
		diffLine(b, console.Red, "- "+path+": "+string(old), style)
	}
	if now != nil {
		diffLine(b, console.Green, "+ "+path+": "+string(now), style)
	}
}

// textLines returns the lines of a JSON string. It returns false if the value is not a string.
func textLines(value json.RawMessage) ([]string, bool) {
	var text string
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return nil, false
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), true
}

// diffLine writes an indented line.
func diffLine(b *strings.Builder, color console.Color, text string, style console.Style) {
	b.WriteString(diffIndent + style.Paint(color, console.Clean(text)) + "\n")
}
