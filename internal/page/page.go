package page

import (
	"bytes"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
)

//go:embed assets
var assets embed.FS

// Options configures a Page. All fields are required.
type Options struct {
	// Status returns the status that the page shows. It is called once per second while somebody looks.
	Status func() control.Status
	// Protect returns a handler that passes on only the requests that may see data of objects.
	Protect func(http.Handler) http.Handler
	// IsLocal reports whether Protect passes on a request without a token.
	IsLocal func(*http.Request) bool
	Logger  *slog.Logger
}

// TailPath is the path that serves data of objects. Kubernetes decides about it as a non-resource URL.
const TailPath = "/ui/tail"

// Page is the live page. It is safe for concurrent use. A nil *Page serves nothing.
type Page struct {
	Options
	renderer *renderer
	hub      *hub
}

// New returns a page that nobody looks at yet.
func New(o Options) *Page {
	r := newRenderer()
	render := func(last frame) (frame, error) { return r.sections(newView(o.Status(), time.Now()), last) }
	return &Page{Options: o, renderer: r, hub: newHub(render, r.tail, o.Logger)}
}

// Close ends all streams. No stream starts after it. It returns when all goroutines of the page have ended.
func (p *Page) Close() {
	if p != nil {
		p.hub.close()
	}
}

// Observe shows an event that a sink has delivered to the viewers that have a tail.
func (p *Page) Observe(sink string, m *event.Message) {
	if p != nil {
		p.hub.tails.observe(sink, m)
	}
}

// Register adds the handlers of the page to a mux.
func (p *Page) Register(mux *http.ServeMux) {
	if p == nil {
		return
	}
	handle := func(path string, h http.Handler) { mux.Handle("GET "+path, secure(h)) }
	handle("/{$}", http.HandlerFunc(p.document))
	handle("/ui/page.css", asset("page.css", "text/css; charset=utf-8"))
	handle("/ui/page.js", asset("page.js", "text/javascript; charset=utf-8"))
	handle("/ui/icon/{name}", http.HandlerFunc(icon))
	handle("/ui/stream", sameSite(p.stream(false)))
	handle(TailPath, sameSite(p.Protect(p.stream(true))))
}

// secure adds the headers that limit what a browser does with the page.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// sameSite rejects requests that a browser sends for a page of another site.
func sameSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			http.Error(w, "this request comes from a page of another site", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// asset serves an embedded file.
func asset(name, contentType string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		content, _ := assets.ReadFile("assets/" + name) // exists
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(content) // fails if the client has disconnected
	})
}

// icon serves the icon of a state for the tab of the browser.
func icon(w http.ResponseWriter, r *http.Request) {
	class, isIcon := strings.CutSuffix(r.PathValue("name"), ".svg")
	shape, known := shapes()[class]
	if !isIcon || !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write(
		[]byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke="` + shape.color +
			`" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">` + string(shape.path) + `</svg>`),
	)
}

// document serves the page.
func (p *Page) document(w http.ResponseWriter, r *http.Request) {
	v := newView(p.Status(), time.Now())
	v.Local = p.IsLocal(r)
	var out bytes.Buffer
	if err := p.renderer.templates.ExecuteTemplate(&out, "page.html", v); err != nil {
		p.Logger.Error("cannot render the page", "err", err)
		http.Error(w, "the page cannot be rendered, see the log of the bridge", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // fails if the client has disconnected
}

// shape is the icon of a state.
type shape struct {
	color string        // for the tab of the browser; readable on light and dark backgrounds
	path  template.HTML // in a box of 16 by 16
}

// shapes returns the icons by the class of the state. Each has a form of its own, so that color is not required.
func shapes() map[string]shape {
	const circle = `<circle cx="8" cy="8" r="6.5"/>`
	return map[string]shape{
		"ok":      {"#2e9e5b", circle + `<path d="m5 8.2 2.2 2.2L11 6"/>`},
		"idle":    {"#8a95a3", circle + `<path d="M6.5 5.8v4.4M9.5 5.8v4.4"/>`},
		"wait":    {"#d99a1c", circle + `<path d="M8 4.5V8l2.3 1.6"/>`},
		"risk":    {"#e2711d", `<path d="M8 1.8 1.5 13.8h13zM8 6.2v3.6M8 11.8v.1"/>`},
		"fail":    {"#d83a3a", `<path d="M5 1.5h6L14.5 5v6L11 14.5H5L1.5 11V5zM5.8 5.8l4.4 4.4m0-4.4-4.4 4.4"/>`},
		"loss":    {"#b832a8", `<path d="M8 1.2 14.8 8 8 14.8 1.2 8zM8 5v3.6M8 11v.1"/>`},
		"unknown": {"#8a95a3", circle + `<path d="M6 6.2a2 2 0 1 1 2.6 2c-.5.2-.6.5-.6 1M8 11.4v.1"/>`},
		"stop":    {"#8a95a3", circle + `<path d="M6 6h4v4H6z"/>`},
	}
}
