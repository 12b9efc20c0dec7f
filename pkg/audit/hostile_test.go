package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/certs"
)

// goodSender sends events with a valid certificate, one after the other.
type goodSender struct {
	t      *testing.T
	url    string
	client *http.Client
	sent   []string // ids of accepted events
}

func (g *goodSender) send() {
	id := fmt.Sprint("good", len(g.sent))
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.url, bytes.NewReader(listOf(item(id))))
	if err != nil {
		g.t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := g.client.Do(r)
	if err != nil {
		g.t.Error(err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		g.t.Errorf("a good request got %s", response.Status)
	}
	g.sent = append(g.sent, id)
}

// untilDone sends until the context ends.
func (g *goodSender) untilDone(ctx context.Context) {
	for ctx.Err() == nil {
		g.send()
	}
}

// raw writes bytes to a TLS connection, and returns the status of the response. It returns 0 if the server closes the
// connection without one, as it does if a handshake takes too long.
func raw(t *testing.T, config *tls.Config, url, request string) int {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	nc, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), config)
	if err != nil {
		t.Logf("handshake: %v", err)
		return 0
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(nc, request); err != nil {
		t.Logf("write: %v", err) // the server may respond before it has read everything
	}
	response, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

// hostileBodies are bodies that a client with a valid certificate can send, and the status for each.
func hostileBodies(t *testing.T) map[string]struct {
	body   string
	header string
	status int
} {
	t.Helper()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := io.Copy(w, io.LimitReader(zeros{}, 5<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	good := string(listOf(item("bad")))
	return map[string]struct {
		body   string
		header string
		status int
	}{
		"another kind":       {strings.Replace(good, "EventList", "Event", 1), "", 400},
		"another apiVersion": {strings.Replace(good, "audit.k8s.io/v1", "audit.k8s.io/v1beta1", 1), "", 400},
		"truncated":          {good[:len(good)/2], "", 400},
		"not JSON":           {"auditID: bad", "", 400},
		"a list in items[1]": {string(listOf(item("bad"), "[]")), "", 400},
		"one event without auditID": {
			string(listOf(item("bad"), strings.Replace(item("x"), "auditID", "other", 1))),
			"",
			400,
		},
		"one event without stage": {
			string(listOf(strings.Replace(item("x"), "stage", "other", 1), item("bad"))),
			"",
			400,
		},
		"an event with an empty name": {string(listOf(item("bad"), item(""))), "", 400},
		"gzip bomb":                   {bomb.String(), "Content-Encoding: gzip\r\n", 415},
		"gzip bomb, undeclared":       {bomb.String(), "", 400},
		"larger than the limit":       {good + strings.Repeat(" ", hostileLimit), "", 413},
	}
}

const hostileLimit = 100_000

// zeros is a reader that never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// While clients send what must be refused, good requests succeed, and the journal has exactly their events.
func TestHostileClients(t *testing.T) {
	ours := newAuthority(t, "ours")
	j := openJournal(t, newDir(t))
	o := tlsOptions(t, ours)
	h, _ := newHandler(t, j, func(o *HandlerOptions) { o.Clients, o.Names = true, []string{"kube-apiserver"} })
	h.maxBody, h.maxRequests = hostileLimit, 8
	o.Handler = h
	url, _ := start(t, o, func(s *Server) { s.readTimeout = 7 * time.Second }) // the machine may stand still for five
	g := &goodSender{t: t, url: url, client: client(t, ours, ours, certs.Options{Name: "kube-apiserver"})}
	g.send()
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { g.untilDone(ctx) })

	config := func(c *http.Client) *tls.Config { return c.Transport.(*http.Transport).TLSClientConfig }
	member := config(client(t, ours, ours, certs.Options{Name: "kube-apiserver"}))
	stranger := config(client(t, ours, nil, certs.Options{}))
	body := string(listOf(item("bad")))
	head := func(method, version, more string) string {
		return method + " /audit HTTP/" + version + "\r\nHost: intake\r\nContent-Type: application/json\r\n" + more + "\r\n"
	}
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	try := func(name string, config *tls.Config, request string, want int) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			if status := raw(t, config, url, request); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
		})
	}
	for name, c := range hostileBodies(t) {
		try(name, member, head("POST", "1.1", length(len(c.body))+c.header)+c.body, c.status)
	}
	try("GET", member, head("GET", "1.1", ""), 405)
	try("HTTP/1.0, without a length", member, head("POST", "1.0", "")+body, 400)
	try("two lengths", member, head("POST", "1.1", length(len(body))+length(5))+body, 400)
	try("not HTTP", member, "\x16\x03\x01\x00\x00\r\n\r\n", 400)
	try("a head of 100 KB", member, head("POST", "1.1", "X: "+strings.Repeat("x", 100_000)+"\r\n"), 431)
	try("the head never ends", member, "POST /audit HTTP/1.1\r\nHost: intake\r\nX-", 400)
	try("the body never ends", member, head("POST", "1.1", length(1000))+body[:50], 408)
	try("no certificate", stranger, head("POST", "1.1", length(len(body)))+body, 401)
	try("no certificate, a forged header", stranger,
		head("POST", "1.1", length(len(body))+"X-Remote-User: kube-apiserver\r\n")+body, 401)
	// Strangers do not use up the number of requests that may arrive at the same time.
	var crowd sync.WaitGroup
	for range 50 {
		crowd.Go(func() {
			status := raw(t, stranger, url, head("POST", "1.1", length(1000))+body[:50])
			if status != http.StatusUnauthorized && status != 0 {
				t.Errorf("a slow stranger got %d", status)
			}
		})
	}
	crowd.Wait()

	cancel()
	sending.Wait()
	g.send()
	if ids, lost := read(t, j, 1); !slices.Equal(ids, g.sent) || lost != nil {
		t.Errorf("%d good events were accepted; the journal has %d, lost %v", len(g.sent), len(ids), lost)
	}
	t.Logf("%d good events", len(g.sent))
}
