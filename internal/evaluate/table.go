package evaluate

import (
	"fmt"
	"io"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/filter"
)

// WriteTable writes the report as formatted text.
func (r *Report) WriteTable(w io.Writer, style console.Style) error {
	t := &table{style: style}
	name := r.Object.Name
	if r.Object.Namespace != "" {
		name = r.Object.Namespace + "/" + name
	}
	t.row("", console.Plain, r.Object.Resource+" "+name, console.Bold)
	kind := strings.TrimSpace(r.Object.APIVersion + " " + r.Object.Kind)
	about := fmt.Sprintf("%s, %s, %s bytes", r.Operation, kind, console.Count(int64(r.Object.Bytes)))
	if r.Object.ResourceVersion != "" {
		about += ", resourceVersion " + r.Object.ResourceVersion
	}
	t.row("", console.Plain, about, console.Plain)
	for _, note := range r.Notes {
		t.row("", console.Plain, "note: "+note, console.Yellow)
	}
	heading := "watch"
	if !r.Watched {
		heading += ": no entry covers the object, so nothing is sent"
	}
	t.out.WriteString("\n")
	t.row("", console.Plain, heading, console.Bold)
	t.watch(r, "  ")
	for n := range r.Sinks {
		t.out.WriteString("\n")
		t.sink(&r.Sinks[n], r.Watched)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	style console.Style
	out   strings.Builder
}

// fieldWidth is the width of the column that contains the names of conditions and message fields.
const fieldWidth = len("namespaces")

// row writes a label and a text.
func (t *table) row(label string, labelColor console.Color, text string, color console.Color) {
	line := t.style.Paint(labelColor, label) + t.style.Paint(color, console.Clean(text))
	t.out.WriteString(strings.TrimRight(line, " ") + "\n")
}

func pad(field string) string { return fmt.Sprintf("%-*s", fieldWidth, field) }

// verdict writes "yes" or "no", a name and a text.
func (t *table) verdict(indent string, holds bool, name, text string) {
	word, color := "no ", console.Red
	if holds {
		word, color = "yes", console.Green
	}
	t.row(indent+word+"  "+name+"  ", color, text, console.Plain)
}

func (t *table) sink(s *Sink, watched bool) {
	outcome, color := "not sent", console.Yellow
	switch {
	case s.Error != "":
		outcome, color = "REJECTED", console.Red
	case s.Message != nil && s.Message.Oversize != "":
		outcome, color = "TOO LARGE: "+s.Message.Oversize, console.Red
	case s.Sent:
		outcome, color = "sent as "+s.Operation, console.Green
	case !watched && s.Operation != "":
		outcome = "not sent; would be sent as " + s.Operation + " if it were watched"
	}
	t.row(fmt.Sprintf("sink %s (%s)  ", s.Name, s.Kind), console.Bold, outcome, color)
	if s.Error != "" {
		t.row("  ", console.Plain, s.Error, console.Red)
	}
	t.filters(s, "  ")
	if s.Message != nil {
		t.message(s.Message)
	}
}

// watch writes whether the entries of `watch` cover the object.
func (t *table) watch(r *Report, indent string) {
	for _, w := range r.Watch {
		t.verdict(indent, w.Covers, fmt.Sprintf("watch[%d]", w.Entry), w.Text+": "+w.Why)
	}
}

// filters writes the verdicts of a sink's filters.
func (t *table) filters(s *Sink, indent string) {
	if len(s.Filters) == 0 {
		t.row(indent, console.Plain, "no filters: all watched objects pass", console.Plain)
	}
	for n := range s.Filters {
		t.filter(&s.Filters[n], indent)
	}
}

func (t *table) filter(v *filter.Verdict, indent string) {
	text := ""
	switch v.State {
	case "before":
		text = "previous state"
	case "now":
		text = "new state"
	}
	if len(v.Conditions) == 0 {
		text = strings.TrimSpace(text + " has no conditions")
	}
	t.verdict(indent, v.Sends, fmt.Sprintf("filters[%d]", v.Rule), text)
	for _, c := range v.Conditions {
		text := c.Text
		switch {
		case c.Error != "":
			text += " (evaluation failed, which counts as true: " + c.Error + ")"
		case c.Field == "namespaces" && c.Found == "":
			text += " (the object has no namespace)"
		case c.Found != "":
			text += " (found: " + c.Found + ")"
		}
		t.verdict(indent+"     ", c.Holds, pad(c.Field), text)
	}
}

func (t *table) message(m *Message) {
	partition, tombstone := "", ""
	if m.Partition != nil {
		partition = fmt.Sprintf("%d of %d", *m.Partition, m.Partitions)
	}
	if m.Tombstone {
		tombstone = "a tombstone: a record with the same key and no value"
	}
	size, color := console.Count(m.Size)+" bytes", console.Plain
	if m.Limit > 0 {
		size = console.Count(m.Size) + " of at most " + console.Count(m.Limit) + " bytes"
	}
	if m.Oversize != "" {
		color = console.Red
	}
	type field struct {
		name, text string
		color      console.Color
	}
	fields := []field{
		{"id", m.ID, console.Plain},
		{"stream", m.Stream, console.Plain},
		{"subject", m.Subject, console.Plain},
		{"topic", m.Topic, console.Plain},
		{"key", m.Key, console.Plain},
		{"partition", partition, console.Plain},
		{"then", tombstone, console.Plain},
		{"size", size, color},
		{"unknown", m.Incomplete, console.Yellow},
	}
	name := "headers"
	for _, h := range m.Headers {
		fields, name = append(fields, field{name, h.Name + ": " + h.Value, console.Dim}), ""
	}
	for _, f := range fields {
		if f.text != "" {
			t.row("  "+pad(f.name)+" ", console.Plain, f.text, f.color)
		}
	}
}
