package page

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// testHub is a hub whose page consists of the text in page, and of a text that does not change.
type testHub struct {
	*hub
	page     atomic.Value // string or error
	rendered atomic.Int64
}

func newTestHub(t *testing.T) *testHub {
	t.Helper()
	h := &testHub{}
	h.page.Store(any("one"))
	render := func(frame) (frame, error) {
		h.rendered.Add(1)
		text := h.page.Load().(string)
		switch text {
		case "error":
			return nil, errors.New("broken")
		case "panic":
			panic("broken")
		}
		return frame{
			{id: "a", event: []byte("event: a\ndata: " + text + "\n\n")},
			{id: "b", event: []byte("event: b\ndata: same\n\n")},
		}, nil
	}
	rows := func(v tail) (parts [][]byte, err error) {
		parts = append(parts, []byte("event: tail"))
		for _, r := range v.rows {
			parts = append(parts, fmt.Appendf(nil, "\ndata: %s %s", r.Operation, r.Name))
		}
		return append(parts, fmt.Appendf(nil, "\ndata: %d missed\n\n", v.missed)), nil
	}
	h.hub = newHub(render, rows, slog.New(slog.NewTextHandler(t.Output(), nil)))
	return h
}

// next returns what a viewer is sent next, as one line. It waits up to a time.
func (v *viewer) next(limit time.Duration) string {
	select {
	case data, ok := <-v.frames:
		if !ok {
			return "disconnected"
		}
		return strings.TrimSpace(strings.NewReplacer("event: ", "", "\ndata: ", "=", "\n\n", " ").Replace(string(data)))
	case <-time.After(limit):
		return "nothing"
	}
}

const most = interval + interval/2

// The page is rendered once per second for all viewers together, and not at all while there are none. A new viewer is
// sent all of it, and then only what has changed.
func TestHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		defer h.close()
		for range 2 { // starts again after it has ended
			h.page.Store(any("one"))
			a, b := h.join(audience{}), h.join(audience{tail: true})
			for v, want := range map[*viewer]string{a: "a=one b=same", b: "a=one b=same"} {
				if got := v.next(most); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			h.page.Store(any("two"))
			for v, want := range map[*viewer]string{a: "a=two", b: "a=two"} {
				if got := v.next(most); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			c := h.join(audience{})
			if got := c.next(most); got != "a=two b=same" {
				t.Errorf("a new viewer: %q", got)
			}
			if got := a.next(keepAlive - 3*interval); got != "nothing" {
				t.Errorf("nothing has changed: %q", got)
			}
			if got := a.next(keepAlive); got != ":" {
				t.Errorf("keep-alive: %q", got)
			}
			h.leave(a)
			before := h.rendered.Load()
			time.Sleep(10 * interval)
			if n := h.rendered.Load() - before; n < 9 || n > 11 {
				t.Errorf("rendered %d times in 10 s", n)
			}
			h.leave(b)
			h.leave(c)
			synctest.Wait() // it may be rendering
			before = h.rendered.Load()
			time.Sleep(time.Hour)
			if n := h.rendered.Load() - before; n > 0 {
				t.Errorf("rendered %d times while nobody looked", n)
			}
		}
	})
}

// A viewer that does not read is disconnected, and delays nobody.
func TestSlowViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		defer h.close()
		h.page.Store(any("0")) // the page is rendered as soon as a viewer joins
		slow, fast := h.join(audience{}), h.join(audience{})
		for n := range 5 {
			h.page.Store(any(fmt.Sprint(n)))
			if got := fast.next(most); !strings.Contains(got, fmt.Sprintf("a=%d", n)) {
				t.Fatalf("%d: %q", n, got)
			}
		}
		slow.next(interval / 4)
		slow.next(interval / 4)
		if got := slow.next(interval / 4); got != "disconnected" {
			t.Errorf("%q", got)
		}
		h.leave(slow) // as the handler does
		h.leave(fast)
	})
}

func TestTooManyViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		var all []*viewer
		for range maxViewers {
			all = append(all, h.join(audience{tail: true}))
		}
		if h.join(audience{}) != nil {
			t.Error("there is no limit")
		}
		h.leave(all[0])
		v := h.join(audience{})
		if v == nil {
			t.Fatal("nobody may look after a viewer has left")
		}
		h.close()
		v.next(interval / 4)
		if got := v.next(interval / 4); got != "disconnected" {
			t.Errorf("after the end: %q", got)
		}
		if h.join(audience{}) != nil {
			t.Error("a viewer joins after the end")
		}
		if h.tails.count.Load() != 0 {
			t.Error("viewers are left")
		}
	})
}

// If the page cannot be rendered, the viewers keep what they have, and the bridge goes on.
func TestBrokenPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		defer h.close()
		v := h.join(audience{})
		v.next(most)
		for _, kind := range []string{"error", "panic"} {
			h.page.Store(any(kind))
			if got := v.next(3 * interval); got != "nothing" {
				t.Errorf("%s: %q", kind, got)
			}
		}
		h.page.Store(any("two"))
		if got := v.next(most); got != "a=two" {
			t.Errorf("%q", got)
		}
	})
}

func message(kind event.Type, namespace, name string) *event.Message {
	return &event.Message{
		Type: kind, Time: time.Now(), Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, ID: "uid.1",
		Identity: object.Identity{Namespace: namespace, Name: name}, Data: []byte(`{"kind":"Pod"}`),
	}
}

// A tail has the events that its viewer has selected, and a bounded number of them.
func TestTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		defer h.close()
		h.tails.observe("live", message(event.Added, "shop", "early")) // nobody looks
		all, shop := h.join(audience{tail: true}), h.join(audience{true, selection{"live", "pod", "shop", "we"}})
		none := h.join(audience{})
		for _, v := range []*viewer{all, shop, none} {
			v.next(most)
		}
		h.tails.observe("live", message(event.Added, "shop", "web"))
		h.tails.observe("live", message(event.Deleted, "shop", "db"))
		h.tails.observe("live", message(event.Updated, "ops", "web"))
		h.tails.observe("audit", message(event.Updated, "shop", "web"))
		left := message(event.Deleted, "shop", "web")
		left.LeftFilter = true
		h.tails.observe("live", left)
		h.tails.observe("live", message(event.Synced, "", ""))
		for v, want := range map[*viewer]string{
			all:  "tail=added shop/web=deleted shop/db=updated ops/web=updated shop/web=left shop/web=synced =0 missed",
			shop: "tail=added shop/web=left shop/web=0 missed", none: "nothing",
		} {
			if got := v.next(most); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		for n := range 3 * tailRows {
			h.tails.observe("live", message(event.Added, "shop", fmt.Sprint(n)))
		}
		if got := all.next(
			most,
		); !strings.HasSuffix(got, fmt.Sprintf("%d missed", 2*tailRows)) ||
			strings.Count(got, "added") != tailRows {
			t.Error(got)
		}
	})
}

// An event is encoded once: viewers with the same selection are sent the same bytes, and selections share rows. Those who
// leave take nothing from the others.
func TestSharedTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		defer h.close()
		h.rows = newRenderer().tail
		web := audience{true, selection{name: "web"}}
		a, b, other := h.join(web), h.join(web), h.join(audience{true, selection{namespace: "shop"}})
		for _, v := range []*viewer{a, b, other} {
			v.next(most)
		}
		h.tails.observe("live", message(event.Added, "shop", "web-<1>"))
		h.tails.mu.Lock()
		shared, same := h.tails.all[web.selection].rows[0], h.tails.all[other.selection].rows[0]
		h.tails.mu.Unlock()
		if shared != same {
			t.Error("two selections have rows of their own")
		}
		first, second, third := <-a.frames, <-b.frames, <-other.frames
		if &first[0] != &second[0] || !bytes.Contains(first, shared.lines) || !bytes.Equal(first, third) {
			t.Errorf("%q, %q, %q", first, second, third)
		}
		for line := range strings.Lines(strings.TrimRight(string(first), "\n")) {
			if !strings.HasPrefix(line, "event: tail") && !strings.HasPrefix(line, "data: ") {
				t.Errorf("%q is not a line of a server-sent event", line)
			}
		}
		shared.Name = "changed" // to see that it is not rendered again
		if again, err := h.rows(tail{rows: []*row{shared}}); err != nil || !bytes.Equal(slices.Concat(again...), first) {
			t.Errorf("%q, %v", again, err)
		}
		h.leave(a)
		h.tails.observe("live", message(event.Added, "ops", "web"))
		if got := b.next(most); !strings.Contains(got, "ops/web") {
			t.Errorf("%q", got)
		}
		h.leave(b)
		h.tails.observe("live", message(event.Added, "ops", "web"))
		if got := other.next(most); got != "nothing" || h.tails.count.Load() != 1 {
			t.Errorf("%q", got)
		}
	})
}

// What a row shows is what was sent. A large body is cut.
func TestRow(t *testing.T) {
	large := `{"a":"` + strings.Repeat("é", tailBytes) + `"}`
	for _, tt := range []struct{ body, want string }{
		{`{"b":1,"a":[]}`, "{\n  \"b\": 1,\n  \"a\": []\n}"},
		{"not \xff JSON", "not \uFFFD JSON"},
		{large, large[:tailBytes-tailBytes%2] + " …"},
	} {
		m := message(event.Added, "shop", "web")
		m.Data = []byte(tt.body)
		if got := newRow("live", "pods", m); got.Text() != tt.want || got.Bytes != int64(len(tt.body)) {
			t.Errorf("%d bytes: %q, want %q", got.Bytes, got.Text(), tt.want)
		}
	}
}

// The stream over HTTP: all sections at first, then what has changed. Only the one with a tail has events.
func TestStream(t *testing.T) {
	var status atomic.Value
	status.Store(healthy())
	p := newTestPage(t, func() control.Status { return status.Load().(control.Status) })
	url := serve(t, p)
	for path, hasTail := range map[string]bool{"/ui/stream": false, "/ui/tail?name=web": true} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Error(got)
		}
		lines := bufio.NewScanner(response.Body)
		var seen []string
		sent, found := false, false
		for !found && lines.Scan() {
			text := lines.Text()
			if name, ok := strings.CutPrefix(text, "event: "); ok {
				seen = append(seen, name)
			}
			if strings.Contains(text, "Everything is delivered") {
				status.Store(hostile())
			}
			if !sent && len(seen) > 0 {
				p.Observe("live", message(event.Added, "shop", "web-"+script))
				sent = true
			}
			if strings.Contains(text, script) {
				t.Error(text)
			}
			found = strings.Contains(text, "&lt;script") && (!hasTail || strings.Contains(text, "web-"))
		}
		response.Body.Close()
		if !found || hasTail != slices.Contains(seen, "tail") || seen[0] != "verdict" {
			t.Error(seen, lines.Err())
		}
		status.Store(healthy())
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	p.Close()
	if response, _ := get(
		t,
		url+"/ui/stream",
	); response.StatusCode != http.StatusServiceUnavailable ||
		response.Header.Get("Retry-After") == "" {
		t.Error(response)
	}
}
