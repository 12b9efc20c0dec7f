package page

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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

// testHub is a hub whose page consists of the text in page, and of objects.
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
			{
				id:   "a",
				html: []byte(text),
			},
			{id: "b", html: []byte("same")},
			{id: "objects", html: []byte("pods/" + text), objects: true},
		}, nil
	}
	rows := func(out *bytes.Buffer, v tailView) error {
		for _, r := range v.Rows {
			fmt.Fprintf(out, "%s %s\n", r.Operation, r.Name)
		}
		fmt.Fprintf(out, "%d missed", v.Missed)
		return nil
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
			a, b := h.join(false, nil), h.join(true, nil)
			for v, want := range map[*viewer]string{a: "a=one b=same", b: "a=one b=same objects=pods/one"} {
				if got := v.next(most); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			h.page.Store(any("two"))
			for v, want := range map[*viewer]string{a: "a=two", b: "a=two objects=pods/two"} {
				if got := v.next(most); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			c := h.join(false, nil)
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
		slow, fast := h.join(false, nil), h.join(false, nil)
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
			all = append(all, h.join(true, &tail{}))
		}
		if h.join(false, nil) != nil {
			t.Error("there is no limit")
		}
		h.leave(all[0])
		v := h.join(false, nil)
		if v == nil {
			t.Fatal("nobody may look after a viewer has left")
		}
		h.close()
		v.next(interval / 4)
		if got := v.next(interval / 4); got != "disconnected" {
			t.Errorf("after the end: %q", got)
		}
		if h.join(false, nil) != nil {
			t.Error("a viewer joins after the end")
		}
		if h.objectViewers.Load() != 0 || h.tails.count.Load() != 0 {
			t.Error("viewers are left")
		}
	})
}

// If the page cannot be rendered, the viewers keep what they have, and the bridge goes on.
func TestBrokenPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		defer h.close()
		v := h.join(false, nil)
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
		all, shop := h.join(true, &tail{}), h.join(true, &tail{sink: "live", resource: "pod", namespace: "shop", name: "we"})
		none := h.join(true, nil)
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

// What a row shows is what was sent. A large body is cut.
func TestRow(t *testing.T) {
	large := `{"a":"` + strings.Repeat("é", tailBytes) + `"}`
	for _, tt := range []struct{ body, want string }{
		{`{"b":1,"a":[]}`, "{\n  \"b\": 1,\n  \"a\": []\n}"},
		{"not \xff JSON", "not \uFFFD JSON"},
		{large, large[:tailBytes-tailBytes%2] + " …"},
	} {
		view := &tail{}
		m := message(event.Added, "shop", "web")
		m.Data = []byte(tt.body)
		view.collect("live", m)
		if got := view.collected.Rows[0]; got.Text() != tt.want || got.Bytes != int64(len(tt.body)) {
			t.Errorf("%d bytes: %q, want %q", got.Bytes, got.Text(), tt.want)
		}
	}
}

// The noisiest objects are found among many, with lower bounds of their counts, and are forgotten after a minute.
func TestNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n noise
		began := time.Now()
		for i := range 3000 {
			n.count(time.Now(), subject{"apps", "deployments", "shop", fmt.Sprint("quiet", i)})
			if i%3 == 0 {
				n.count(time.Now(), subject{"", "pods", "shop", "loud"})
			}
			if i%10 == 0 {
				n.count(time.Now(), subject{"", "nodes", "", "node"})
			}
			time.Sleep(10 * time.Millisecond)
		}
		all, since := n.top(time.Now(), 2)
		if len(all) != 2 || all[0].Name != "loud" || all[0].Count < 900 || all[0].Count > 1000 || all[0].Share != 100 ||
			all[1].Name != "node" || all[1].Count > 300 || all[1].Count < 150 || !since.Equal(began) {
			t.Errorf("%+v since %v", all, since)
		}
		rest, _ := n.top(time.Now(), sketchSize*sketches)
		for _, o := range rest {
			if strings.HasPrefix(o.Name, "quiet") && o.Count != 1 {
				t.Fatalf("%+v", o)
			}
		}
		time.Sleep(40 * time.Second)
		if all, since = n.top(time.Now(), 1); len(all) != 1 || all[0].Count >= 900 || time.Since(since) > time.Minute {
			t.Errorf("%+v since %v", all, since)
		}
		time.Sleep(time.Minute)
		if all, _ = n.top(time.Now(), 1); len(all) > 0 {
			t.Errorf("%+v", all)
		}
	})
}

// Objects are counted only while somebody may see them.
func TestCounting(t *testing.T) {
	p := newTestPage(t, healthy)
	calls := 0
	count := p.Counting(func(schema.GroupVersionResource, *object.Object) { calls++ })
	pod := func() {
		count(
			schema.GroupVersionResource{Resource: "pods"},
			&object.Object{Identity: object.Identity{Namespace: "shop", Name: "web"}},
		)
	}
	pod()
	public := p.hub.join(false, nil)
	pod()
	viewer := p.hub.join(true, nil)
	pod()
	p.Counting(nil)(schema.GroupVersionResource{Resource: "pods"}, &object.Object{})
	if all, _ := p.hub.noise.top(time.Now(), 9); len(all) != 2 || calls != 3 {
		t.Errorf("%+v after %d calls", all, calls)
	}
	p.hub.leave(viewer)
	p.hub.leave(public)
	if all, _ := p.hub.noise.top(time.Now(), 9); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// The stream over HTTP: all sections at first, then what has changed. A viewer without a right gets no objects.
func TestStream(t *testing.T) {
	var status atomic.Value
	status.Store(healthy())
	p := newTestPage(t, func() control.Status { return status.Load().(control.Status) })
	url := serve(t, p)
	for path, objects := range map[string]bool{"/ui/stream": false, "/ui/objects?tail=1&name=web": true} {
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
			found = strings.Contains(text, "&lt;script") && (!objects || strings.Contains(text, "web-"))
		}
		response.Body.Close()
		if !found || objects != strings.Contains(strings.Join(seen, " "), "objects") || seen[0] != "verdict" {
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
