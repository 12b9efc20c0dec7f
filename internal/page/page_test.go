package page

import (
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/control"
)

// newTestPage returns a page that shows a status. Requests that are not local, which are those with the header Remote,
// require a token, which is "good".
func newTestPage(t testing.TB, status func() control.Status) *Page {
	t.Helper()
	var p *Page
	p = New(Options{
		Status: status, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		IsLocal: func(r *http.Request) bool { return r.Header.Get("Remote") == "" },
		Protect: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !p.IsLocal(r) && r.Header.Get("Authorization") != "Bearer good" {
					http.Error(w, "the token is not valid", http.StatusUnauthorized)
					return
				}
				next.ServeHTTP(w, r)
			})
		},
	})
	t.Cleanup(p.Close)
	return p
}

func serve(t testing.TB, p *Page) string {
	t.Helper()
	mux := http.NewServeMux()
	p.Register(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(p.Close) // earlier than the server, which waits for its streams
	return server.URL
}

// answer is a response whose body was read.
type answer struct {
	StatusCode int
	Header     http.Header
}

// get returns a response and its body.
func get(t testing.TB, url string, header ...string) (answer, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}, string(body)
}

// Each status can be shown, and shows its verdict. Nothing in it is taken for markup, and there are no inline scripts
// and styles, which the content security policy would block.
func TestDocument(t *testing.T) {
	for name, status := range states() {
		t.Run(name, func(t *testing.T) {
			response, body := get(t, serve(t, newTestPage(t, func() control.Status { return status })))
			if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Fatal(response.StatusCode, response.Header)
			}
			for _, policy := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
				if !strings.Contains(response.Header.Get("Content-Security-Policy"), policy) {
					t.Error(response.Header)
				}
			}
			if response.Header.Get("X-Content-Type-Options") != "nosniff" ||
				response.Header.Get("Cache-Control") != "no-store" ||
				response.Header.Get("Referrer-Policy") != "no-referrer" {
				t.Error(response.Header)
			}
			if !strings.Contains(body, template.HTMLEscapeString(status.Verdict.Text)) {
				t.Errorf("%q is not on the page", status.Verdict.Text)
			}
			if strings.Contains(body, script) ||
				len(regexp.MustCompile(`<script|\sstyle=|\son\w+="`).FindAllString(body, -1)) > 1 {
				t.Error(body)
			}
			if strings.Contains(body, "ZgotmplZ") || strings.Contains(body, "<no value>") || strings.Contains(body, "%!") {
				t.Error(body)
			}
		})
	}
}

// What the page shows first of 300 resources and 16 sinks: the worst.
func TestWorstFirst(t *testing.T) {
	_, body := get(t, serve(t, newTestPage(t, large)))
	for _, want := range []string{"8 more sinks", "290 more resources"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	var order []string
	for _, match := range regexp.MustCompile(`<details data-key="sink ([^"]*)"`).FindAllStringSubmatch(body, -1) {
		order = append(order, match[1])
	}
	if len(order) != 16 || order[0] != "warehouse" || order[1] != "team-06" {
		t.Error(order)
	}
}

// A failing source is shown even if there are many.
func TestFold(t *testing.T) {
	for _, tt := range []struct{ all, bad, shown int }{
		{0, 0, 0}, {8, 0, 8}, {9, 0, 9}, {10, 0, 8}, {10, 9, 10}, {30, 9, 9}, {30, 28, 24}, {25, 25, 25},
	} {
		parts := make([]control.Health, tt.all)
		for n := range parts {
			if parts[n] = control.Healthy; n < tt.bad {
				parts[n] = control.Failing
			}
		}
		shown, folded := fold(parts, 8, func(h *control.Health) control.Health { return *h })
		if len(shown) != tt.shown || len(shown)+len(folded) != tt.all {
			t.Errorf("%d of %d are bad: %d are shown", tt.bad, tt.all, len(shown))
		}
	}
}

// Every state has a class and an icon. No two look the same.
func TestStates(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range []control.Health{
		control.Healthy, control.Idle, control.Waiting, control.AtRisk, control.Failing, control.Lossy, control.Unknown, control.Stopping,
	} {
		shape, ok := shapes()[class(h)]
		if !ok || seen[string(shape.path)] {
			t.Errorf("%s: class %s", h, class(h))
		}
		seen[string(shape.path)] = true
	}
}

// Who may see what: the status is public, data of objects is not.
func TestAccess(t *testing.T) {
	p := newTestPage(t, healthy)
	url := serve(t, p)
	for _, tt := range []struct {
		name, path string
		header     []string
		want       int
	}{
		{"the page", "/", nil, http.StatusOK},
		{"another page", "/other", nil, http.StatusNotFound},
		{"the style", "/ui/page.css", nil, http.StatusOK},
		{"an icon", "/ui/icon/fail.svg", nil, http.StatusOK},
		{"no icon", "/ui/icon/fail.png", nil, http.StatusNotFound},
		{"unknown icon", "/ui/icon/nothing.svg", nil, http.StatusNotFound},
		{"remote", "/ui/tail", []string{"Remote", "1"}, http.StatusUnauthorized},
		{"from another site", "/ui/tail", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"a stream for another site", "/ui/stream", []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response, body := get(t, url+tt.path, tt.header...)
			if response.StatusCode != tt.want ||
				tt.want == http.StatusOK && response.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("%d %v: %s", response.StatusCode, response.Header, body)
			}
		})
	}
	const hidden = `aria-labelledby="h-access" hidden`
	if _, body := get(t, url, "Remote", "1"); strings.Contains(body, "data-local") || strings.Contains(body, hidden) {
		t.Error("a remote viewer is not asked for a token")
	}
	if _, body := get(t, url); !strings.Contains(body, "data-local") || !strings.Contains(body, hidden) {
		t.Error("a local viewer is asked for a token")
	}
}

// Without a page, nothing is served, and the bridge works as before.
func TestNoPage(t *testing.T) {
	var p *Page
	p.Register(http.NewServeMux())
	p.Observe("live", nil)
	p.Close()
}

func TestFormat(t *testing.T) {
	for got, want := range map[string]string{
		rate(0): "0/s", rate(0.02): "<0.1/s", rate(3.21): "3.2/s", rate(1234.6): "1,235/s",
		bytesOf(0): "0 B", bytesOf(999): "999 B", bytesOf(3355443): "3.2 MiB", bytesOf(64 << 20): "64 MiB", bytesOf(5 << 50): "5120 TiB",
		seconds(0.2): "0s", seconds(75): "75s", seconds(8040): "134m", seconds(1e9): "31y",
		plural(1, "event"): "1 event", plural(1204, "event"): "1,204 events",
		fmt.Sprint(percent[int64](1, 1000), percent[int64](5, 4), percent[int64](1, 0), percent[int64](-1, 4)): "1 100 0 0",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
