package explain

import (
	"fmt"
	"io"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
)

// WriteTable writes the report as text.
func (r *Report) WriteTable(w io.Writer, style console.Style) error {
	t := &table{style: style}
	name := r.Object.Name
	if r.Object.Namespace != "" {
		name = r.Object.Namespace + "/" + name
	}
	t.line(0, console.Bold, r.Object.Resource+" "+name)
	about := fmt.Sprintf("%s, %s, %s bytes", r.Operation, strings.TrimSpace(r.Object.APIVersion+" "+r.Object.Kind), console.Count(int64(r.Object.Bytes)))
	if r.Object.ResourceVersion != "" {
		about += ", resourceVersion " + r.Object.ResourceVersion
	}
	t.line(0, console.Plain, about)
	for _, note := range r.Notes {
		t.line(0, console.Yellow, "note: "+note)
	}
	t.line(0, console.Plain, "")
	if r.Watched {
		t.line(0, console.Bold, "watch")
	} else {
		t.line(0, console.Bold, "watch: no entry covers the object, so nothing is sent")
	}
	for _, watch := range r.Watch {
		t.verdict(2, watch.Covers, fmt.Sprintf("watch[%d]", watch.Entry), watch.Text+": "+watch.Why, len("watch[0]"))
	}
	for n := range r.Sinks {
		t.line(0, console.Plain, "")
		t.sink(&r.Sinks[n], r.Watched)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	style console.Style
	out   strings.Builder
}

const minWidth = 20 // minimum width of wrapped text

// line writes wrapped and indented text.
func (t *table) line(indent int, color console.Color, text string) {
	for _, part := range t.wrap(text, indent) {
		t.out.WriteString(strings.TrimRight(strings.Repeat(" ", indent)+t.style.Paint(color, part), " ") + "\n")
	}
}

func (t *table) wrap(text string, indent int) []string {
	to := 0
	if t.style.Width > 0 {
		to = max(t.style.Width-indent, minWidth)
	}
	return console.Wrap(console.Clean(text), to)
}

// field writes a name and, in the next column, its text.
func (t *table) field(name, text string, color console.Color) {
	start := "  " + console.Pad(name, len("partition")) + "  "
	for i, part := range t.wrap(text, console.Width(start)) {
		if i > 0 {
			start = strings.Repeat(" ", console.Width(start))
		}
		t.out.WriteString(strings.TrimRight(start+t.style.Paint(color, part), " ") + "\n")
	}
}

// verdict writes yes or no, a name and its text.
func (t *table) verdict(indent int, holds bool, name, text string, column int) {
	word, color := "no ", console.Red
	if holds {
		word, color = "yes", console.Green
	}
	t.out.WriteString(strings.Repeat(" ", indent) + t.style.Paint(color, word) + "  ")
	start := indent + len(word) + 2 + column + 2
	for i, part := range t.wrap(text, start) {
		if i > 0 {
			t.out.WriteString(strings.Repeat(" ", start) + part + "\n")
			continue
		}
		t.out.WriteString(strings.TrimRight(console.Pad(name, column)+"  "+part, " ") + "\n")
	}
}

func (t *table) sink(s *Sink, watched bool) {
	outcome, color := "not sent", console.Yellow
	switch {
	case s.Error != "":
		outcome, color = "REJECTED", console.Red
	case s.Message != nil && s.Message.TooLarge():
		outcome, color = "TOO LARGE: "+s.Message.Oversize, console.Red
	case s.Sent:
		outcome, color = "sent as "+s.Operation, console.Green
	case !watched && s.Operation != "":
		outcome = "not sent; would be sent as " + s.Operation + " if it were watched"
	}
	t.out.WriteString(t.style.Paint(console.Bold, fmt.Sprintf("sink %s (%s)", s.Name, s.Kind)) + "  " + t.style.Paint(color, outcome) + "\n")
	if s.Error != "" {
		t.line(2, console.Red, s.Error)
	}
	if len(s.Filters) == 0 {
		t.line(2, console.Plain, "no filters: all watched objects pass")
	}
	for n := range s.Filters {
		t.filter(&s.Filters[n])
	}
	if s.Message != nil {
		t.message(s.Message)
	}
}

func (t *table) filter(f *Filter) {
	name := fmt.Sprintf("filters[%d]", f.Index)
	text := ""
	switch f.State {
	case "before":
		text = "previous state"
	case "now":
		text = "new state"
	}
	if len(f.Conditions) == 0 {
		text = strings.TrimSpace(text + " has no conditions")
	}
	t.verdict(2, f.Passes, name, text, len(name))
	for _, c := range f.Conditions {
		text := c.Text
		switch {
		case c.Error != "":
			text += " (evaluation failed, which counts as true: " + c.Error + ")"
		case c.Field == "namespaces" && c.Found == "":
			text += " (the object has no namespace)"
		case c.Found != "":
			text += " (found: " + c.Found + ")"
		}
		t.verdict(7, c.Holds, c.Field, text, len("namespaces"))
	}
}

func (t *table) message(m *Message) {
	field := func(name, text string) {
		if text != "" {
			t.field(name, text, console.Plain)
		}
	}
	field("id", m.ID)
	field("stream", m.Stream)
	field("subject", m.Subject)
	field("topic", m.Topic)
	field("key", m.Key)
	if m.Partition != nil {
		field("partition", fmt.Sprintf("%d of %d", *m.Partition, m.Partitions))
	}
	if m.Tombstone {
		field("then", "a tombstone: a record with the same key and no value")
	}
	size := console.Count(m.Size) + " bytes"
	if m.Limit > 0 {
		size = console.Count(m.Size) + " of at most " + console.Count(m.Limit) + " bytes"
	}
	color := console.Plain
	if m.TooLarge() {
		color = console.Red
	}
	t.field("size", size, color)
	if m.Unknown != "" {
		t.field("unknown", m.Unknown, console.Yellow)
	}
	for i, h := range m.Headers {
		name := "headers"
		if i > 0 {
			name = ""
		}
		t.field(name, h.Name+": "+h.Value, console.Dim)
	}
}
