package tail

import (
	"encoding/json"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// stateLimit limits the total size of the remembered states, in bytes.
const stateLimit = 256 << 20

// states holds the last seen state of each object, by uid.
type states struct {
	last  map[string][]byte
	bytes int
	limit int
}

func (s *states) put(uid string, state []byte) {
	if s.last == nil {
		s.last = map[string][]byte{}
	}
	s.drop(uid)
	s.last[uid], s.bytes = state, s.bytes+len(state)
	for other := range s.last { // drop any: the object's next update brings its state again
		if s.bytes <= s.limit {
			break
		}
		s.drop(other)
	}
}

func (s *states) drop(uid string) {
	s.bytes -= len(s.last[uid])
	delete(s.last, uid)
}

const diffIndent = "    "

// diff returns what an update changed, in lines, and records the new state. It returns an empty string for other
// events.
func (p *Printer) diff(r *diagnose.Record, c *change, style console.Style) string {
	uid := r.Attributes["uid"]
	switch r.Type() {
	case event.Added, event.Restated:
		p.states.put(uid, c.object)
		return ""
	case event.Updated:
	case event.Deleted:
		p.states.drop(uid)
		return ""
	default:
		return ""
	}
	before := p.states.last[uid]
	p.states.put(uid, c.object)
	if c.old != nil {
		before = c.old
	}
	switch {
	case before == nil && c.patch != nil:
		return patchLines(c.patch, style)
	case before == nil || c.object == nil:
		return diffIndent + style.Paint(console.Dim, "(previous state unknown)") + "\n"
	}
	var b strings.Builder
	for _, change := range jsonpatch.Diff(before, c.object) {
		path := change.Pointer()
		if path == "/metadata/resourceVersion" { // the line above shows it
			continue
		}
		writeChange(&b, path, change.Old, change.Value, style)
	}
	return b.String()
}

// writeChange writes a removal and an addition at one path. For multi-line strings it writes only the range of lines
// that differs.
func writeChange(b *strings.Builder, path string, old, now json.RawMessage, style console.Style) {
	before, isText := textLines(old)
	after, stillText := textLines(now)
	if isText && stillText && len(before)+len(after) > 2 {
		diffLine(b, console.Cyan, "@ ", path, style)
		for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
			before, after = before[1:], after[1:]
		}
		for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
			before, after = before[:len(before)-1], after[:len(after)-1]
		}
		for _, text := range before {
			diffLine(b, console.Red, "- ", text, style)
		}
		for _, text := range after {
			diffLine(b, console.Green, "+ ", text, style)
		}
		return
	}
	if old != nil {
		diffLine(b, console.Red, "- ", path+": "+string(old), style)
	}
	if now != nil {
		diffLine(b, console.Green, "+ ", path+": "+string(now), style)
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

func diffLine(b *strings.Builder, color console.Color, sign, text string, style console.Style) {
	text = sign + console.Clean(text)
	if style.Width > 0 {
		text = console.Cut(text, max(style.Width-len(diffIndent), 8))
	}
	b.WriteString(diffIndent + style.Paint(color, text) + "\n")
}

// patchLines renders the event's own patch (RFC 6902 or RFC 7386), for events whose previous state is not known.
func patchLines(patch json.RawMessage, style console.Style) string {
	var b strings.Builder
	var operations []struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(patch, &operations) != nil {
		diffLine(&b, console.Green, "+ ", string(patch), style)
		return b.String()
	}
	for _, o := range operations {
		switch {
		case o.Path == "/metadata/resourceVersion":
		case o.Op == "remove":
			diffLine(&b, console.Red, "- ", o.Path, style)
		default:
			diffLine(&b, console.Green, "+ ", o.Path+": "+string(o.Value), style)
		}
	}
	return b.String()
}
