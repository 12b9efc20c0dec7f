package page

import (
	"bytes"
	"fmt"
	"html/template"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
)

// renderer renders the page and its parts. It is safe for concurrent use.
type renderer struct{ templates *template.Template }

// sectionIDs returns the sections of the page, each a template and an element of the document.
func sectionIDs() []string {
	return []string{"verdict", "totals", "flow", "open-sources", moreSources, "losses", "bridge"}
}

// item is a part of the page, and the page.
type item struct {
	View *view
	Item any
}

func newRenderer() *renderer {
	symbols := func() template.HTML {
		var out strings.Builder
		all := shapes()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(&out, `<symbol id="i-%s" viewBox="0 0 16 16">%s</symbol>`, name, all[name].path)
		}
		return template.HTML(out.String())
	}
	functions := template.FuncMap{
		"symbols": symbols,
		"class":   class,
		"rate":    rate,
		"bytes":   func(n any) string { return bytesOf(integer(n)) },
		"seconds": seconds,
		"percent": percent[int64],
		"name":    resourceName,
		"clock":   clock,
		"machine": machine,
		"waiting": func(s control.Sink) int64 { return s.Waiting() },
		"passed":  func(s control.Sink) int64 { return s.Received - s.Filtered },
		"of":      func(v *view, it any) item { return item{v, it} },
		"count":   func(n any) string { return count(integer(n)) },
		"plural":  func(n any, noun string) string { return plural(integer(n), noun) },
		"since":   func(v *view, t time.Time) string { return seconds(v.Now.Sub(t).Seconds()) },
		"first":   func(hash string) string { return hash[:min(8, len(hash))] },
	}
	t := template.New("").Funcs(functions)
	for _, name := range []string{"page.html", "parts.html"} {
		text, _ := assets.ReadFile("assets/" + name) // exists
		var lines []string
		for line := range strings.Lines(string(text)) { // without the indentation, which would be sent each second
			lines = append(lines, strings.TrimSpace(line))
		}
		template.Must(t.New(name).Parse(strings.Join(lines, "\n")))
	}
	return &renderer{t}
}

// integer returns an integer of any size.
func integer(n any) int64 { return reflect.ValueOf(n).Int() }

// moreSources is the section with the folded sources. It can have hundreds of rows, so it is rendered again only if
// other sources are folded, or after moreInterval.
const (
	moreSources  = "more-sources"
	moreInterval = 10 * time.Second
)

// sections renders the parts of the page that change. last contains what was rendered before, if anything.
func (r *renderer) sections(v *view, last frame) (f frame, err error) {
	for i, id := range sectionIDs() {
		s := section{id: id}
		size := 0
		if last != nil {
			size = len(last[i].event) + 64 // about as long as before
		}
		if id == moreSources {
			s.of, s.at = v.foldedNames(), v.Now
			if last != nil && last[i].of == s.of && s.at.Sub(last[i].at) < moreInterval {
				f = append(f, last[i])
				continue
			}
		}
		if s.event, err = r.lines(size, "event: "+id+"\ndata: ", id, v); err != nil {
			return nil, err
		}
		s.event = append(s.event, "\n\n"...)
		f = append(f, s)
	}
	return f, nil
}

// tail renders the events of a selection as the parts of a server-sent event. It renders each row once, even if several
// selections contain it.
func (r *renderer) tail(t tail) (parts [][]byte, err error) {
	parts = append(parts, []byte("event: tail"))
	if t.missed > 0 {
		lines, err := r.lines(0, "\ndata: ", "missed", t.missed)
		if err != nil {
			return nil, err
		}
		parts = append(parts, lines)
	}
	for _, row := range t.rows {
		if row.lines == nil {
			if row.lines, err = r.lines(2*len(row.Body), "\ndata: ", "row", row); err != nil {
				return nil, err
			}
		}
		parts = append(parts, row.lines)
	}
	return append(parts, []byte("\n\n")), nil
}

// lines renders a template as data of a server-sent event, after a prefix. size is the expected size.
func (r *renderer) lines(size int, prefix, name string, data any) ([]byte, error) {
	out := append(make(dataWriter, 0, size), prefix...)
	err := r.templates.ExecuteTemplate(&out, name, data)
	return out, err
}

// dataWriter appends what is written to the data of a server-sent event, each line of which has a prefix.
type dataWriter []byte

// Write implements [io.Writer].
func (w *dataWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		text := bytes.TrimRight(line, "\r\n")
		if *w = append(*w, text...); len(text) < len(line) {
			*w = append(*w, "\ndata: "...)
		}
	}
	return len(p), nil
}
