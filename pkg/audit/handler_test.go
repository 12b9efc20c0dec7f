package audit

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// counter is an Observer.
type counter struct {
	mu              sync.Mutex
	events, batches int
	refused         map[Reason]int
}

func (c *counter) Received(events int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events, c.batches = c.events+events, c.batches+1
}

func (c *counter) Refused(reason Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[Reason]int{}
	}
	c.refused[reason]++
}

const token = "s3cret"

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newHandler returns a handler that accepts the token, and what it counts.
func newHandler(t testing.TB, j *Journal, change ...func(*HandlerOptions)) (*Handler, *counter) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, token+"\n")
	counted := new(counter)
	o := HandlerOptions{Journal: j, TokenFile: file, Logger: slog.New(slog.DiscardHandler), Observer: counted}
	for _, f := range change {
		f(&o)
	}
	h, err := NewHandler(o)
	if err != nil {
		t.Fatal(err)
	}
	return h, counted
}

// post returns a request as an API server sends it.
func post(ctx context.Context, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/audit?timeout=30s", body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAccepted(t *testing.T) {
	j := openJournal(t, newDir(t))
	h, counted := newHandler(t, j)
	body := sent(t)
	for _, r := range []*http.Request{
		post(t.Context(), bytes.NewReader(body)),
		post(t.Context(), io.MultiReader(bytes.NewReader(body))), // of unknown length
		post(t.Context(), bytes.NewReader(listOf())),
	} {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		if w := serve(h, r); w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if counted.events != 6 || counted.batches != 3 || counted.refused != nil {
		t.Errorf("%+v", counted)
	}
	if ids, _ := read(t, j, 1); len(ids) != 6 || !slices.Equal(ids[:3], ids[3:]) {
		t.Errorf("%v", ids)
	}
	if h.requests != 0 || h.buffered != 0 {
		t.Errorf("%d requests, %d bytes", h.requests, h.buffered)
	}
}

// Each refused request gets a status and one line that says why. Nothing of it is stored.
func TestRefused(t *testing.T) {
	j := openJournal(t, newDir(t))
	h, counted := newHandler(t, j)
	h.maxBody = 10_000
	good := string(listOf(item("a")))
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "other"}, NotAfter: time.Now().Add(time.Hour)}
	for _, c := range []struct {
		name   string
		body   string
		change func(*http.Request)
		status int
		reason Reason
		text   string
	}{
		{"no token", good, func(r *http.Request) { r.Header.Del("Authorization") }, 401, Unauthenticated, "the request has no bearer token"},
		{"other scheme", good, func(r *http.Request) { r.SetBasicAuth("a", token) }, 401, Unauthenticated, "the request has no bearer token"},
		{"wrong token", good, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401, Unauthenticated, "the bearer token is not valid"},
		{"empty token", good, func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401, Unauthenticated, "the bearer token is not valid"},
		{"certificate, but none is accepted", good, func(r *http.Request) {
			r.Header.Del("Authorization")
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
		}, 401, Unauthenticated, "the request has no bearer token"},
		{"GET", good, func(r *http.Request) { r.Method = "GET" }, 405, Invalid, `the method is "GET"; audit webhooks use POST`},
		{"YAML", good, func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }, 415, Invalid, `the Content-Type is "application/yaml"; audit events are sent as application/json`},
		{"no type", good, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, Invalid, `the Content-Type is ""`},
		{"gzip", good, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, Invalid, `the Content-Encoding is "gzip"`},
		{"empty", "", nil, 400, Invalid, "cannot accept the audit events: not valid JSON: unexpected end"},
		{"truncated", good[:100], nil, 400, Invalid, "cannot accept the audit events: not valid JSON: unexpected end"},
		{"trailing garbage", good + "{}", nil, 400, Invalid, "cannot accept the audit events: not valid JSON: invalid character"},
		{"wrong kind", strings.Replace(good, "EventList", "PodList", 1), nil, 400, Invalid, "cannot accept the audit events: not an EventList"},
		{"one bad event", string(listOf(item("a"), item("b"), item(""))), nil, 400, Invalid, "cannot accept the audit events: items[2] has no auditID"},
		{"large", good + strings.Repeat(" ", 10_000), nil, 413, TooLarge, "the body has more than 10000 bytes; set --audit-webhook-truncate-enabled"},
		{"large, of unknown length", good + strings.Repeat(" ", 10_000), func(r *http.Request) { r.ContentLength = -1 }, 413, TooLarge, "the body has more than 10000 bytes"},
		{"connection lost", good, func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(good[:50]), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}, 400, Invalid, "the body is not complete: unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := post(t.Context(), strings.NewReader(c.body))
			if c.change != nil {
				c.change(r)
			}
			before := counted.refused[c.reason]
			w := serve(h, r)
			if text := w.Body.String(); w.Code != c.status || !strings.HasPrefix(text, c.text) ||
				strings.Index(text, "\n") != len(text)-1 ||
				strings.Contains(text, token) {
				t.Errorf("%d %s\nwant %d %s", w.Code, text, c.status, c.text)
			}
			if w.Header().Get("Retry-After") != "" {
				t.Error("repeating the request cannot help")
			}
			if got := w.Header().Get("WWW-Authenticate"); (got == "Bearer") != (c.status == 401) {
				t.Errorf("WWW-Authenticate: %s", got)
			}
			if counted.refused[c.reason] != before+1 {
				t.Errorf("%v", counted.refused)
			}
		})
	}
	if w := serve(h, post(t.Context(), strings.NewReader(good))); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantRead(t, j, 1, "a")
}

// The file is read for each request. All its tokens are accepted.
func TestTokenFile(t *testing.T) {
	h, counted := newHandler(t, openJournal(t, newDir(t)))
	try := func(token string, want int) {
		t.Helper()
		r := post(t.Context(), bytes.NewReader(sent(t)))
		r.Header.Set("Authorization", "bearer "+token)
		if w := serve(h, r); w.Code != want || strings.Contains(w.Body.String(), h.opts.TokenFile) {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	try(token, 200)
	writeFile(t, h.opts.TokenFile, "next\n"+token+"\n")
	try(token, 200)
	try("next", 200)
	try("next\n"+token, 401)
	writeFile(t, h.opts.TokenFile, "next")
	try(token, 401)
	writeFile(t, h.opts.TokenFile, " \n")
	try("", 503)
	if err := os.Remove(h.opts.TokenFile); err != nil {
		t.Fatal(err)
	}
	try("next", 503)
	if counted.refused[Failing] != 2 {
		t.Errorf("%v", counted.refused)
	}
	for name, o := range map[string]HandlerOptions{"no authentication": {}, "no file": {TokenFile: h.opts.TokenFile}} {
		if _, err := NewHandler(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A request that does not fit in the journal gets 503, and is accepted when there is room.
func TestJournalFull(t *testing.T) {
	j := openJournal(t, newDir(t), func(o *JournalOptions) { o.MaxBytes = 4000 })
	h, counted := newHandler(t, j)
	try := func(want int) {
		t.Helper()
		w := serve(h, post(t.Context(), bytes.NewReader(sent(t))))
		if w.Code != want || (w.Header().Get("Retry-After") == "2") != (want == 503) {
			t.Errorf("%d %s %v, want %d", w.Code, w.Body, w.Header(), want)
		}
	}
	try(200)
	try(503)
	if err := j.Ack(3); err != nil {
		t.Fatal(err)
	}
	try(200)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	try(503)
	if counted.refused[Full] != 1 || counted.refused[Failing] != 1 || counted.batches != 2 {
		t.Errorf("%+v", counted)
	}
}

// Requests beyond the limits get 429 before they are read, and those within the limits are not affected.
func TestBusy(t *testing.T) {
	body := sent(t)
	for name, change := range map[string]func(*Handler){
		"requests": func(h *Handler) { h.maxRequests = 2 },
		"bytes":    func(h *Handler) { h.maxBody = int64(3*len(body)) - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			j := openJournal(t, newDir(t))
			h, counted := newHandler(t, j)
			change(h)
			j.writing <- struct{}{} // the disk is slow
			done := make(chan int)
			for range 2 {
				go func() { done <- serve(h, post(t.Context(), bytes.NewReader(body))).Code }()
			}
			waitFor(t, j, 2)
			r := post(t.Context(), nil)
			r.Body, r.ContentLength = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), int64(len(body))
			if w := serve(h, r); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			j.release()
			for range 2 {
				if code := <-done; code != 200 {
					t.Errorf("%d", code)
				}
			}
			if counted.refused[Busy] != 1 || counted.events != 6 {
				t.Errorf("%+v", counted)
			}
			if w := serve(h, post(t.Context(), bytes.NewReader(body))); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// If the client closes the connection while its events wait for the disk, they are not stored.
func TestCanceled(t *testing.T) {
	j := openJournal(t, newDir(t))
	h, counted := newHandler(t, j)
	j.writing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- serve(h, post(ctx, bytes.NewReader(sent(t)))).Code }()
	waitFor(t, j, 1)
	cancel()
	if code := <-done; code != 503 || counted.refused[Canceled] != 1 {
		t.Errorf("%d, %v", code, counted.refused)
	}
	j.release()
	appendTo(t, j, "next")
	wantRead(t, j, 1, "next")
}

// One line per reason and minute is logged, without the token.
func TestRefusedIsLogged(t *testing.T) {
	var log bytes.Buffer
	h, _ := newHandler(t, openJournal(t, newDir(t)), func(o *HandlerOptions) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	synctest.Test(t, func(t *testing.T) {
		for n := range 4 {
			serve(h, post(t.Context(), strings.NewReader("{")))
			r := post(t.Context(), nil)
			r.Header.Set("Authorization", "Bearer forged")
			serve(h, r)
			if lines := strings.Count(log.String(), "\n"); lines != 2+n/3*2 {
				t.Errorf("after %d: %d lines\n%s", n, lines, &log)
			}
			time.Sleep(logInterval / 3)
		}
	})
	if text := log.String(); !strings.Contains(text, "reason=invalid status=400") || strings.Contains(text, "forged") {
		t.Error(text)
	}
}

// Any body is answered, and what is answered with 200 is in the journal.
func FuzzHandler(f *testing.F) {
	f.Add(sent(f))
	f.Add(listOf(item("a"))[:60])
	f.Add([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"auditID":"a","stage":"S"}]}x`))
	j := openJournal(f, newDir(f))
	h, _ := newHandler(f, j)
	f.Fuzz(func(t *testing.T, body []byte) {
		if isDeep(body) {
			return
		}
		before := j.Status().Last
		w := serve(h, post(t.Context(), bytes.NewReader(body)))
		events, err := modelOf(body)
		switch stored := j.Status().Last - before; {
		case err == nil && (w.Code != 200 || stored != uint64(len(events))):
			t.Errorf("%d %s, %d stored", w.Code, w.Body, stored)
		case err != nil && (w.Code != 400 || stored != 0):
			t.Errorf("%d %s, %d stored, %v", w.Code, w.Body, stored, err)
		}
		if err := j.Ack(j.Status().Last); err != nil {
			t.Fatal(err)
		}
	})
}
