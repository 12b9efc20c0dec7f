package daemon

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// run --print has a line for each acknowledged event: when, what happened, to which object, and where it went.
func TestPrintedEvents(t *testing.T) {
	cfg, err := config.Parse("", []byte(`sinks: [
		{name: js, nats: {url: "nats://a:4222", subject: "k8s.{resource}.{name}"}}, {name: lines, stdout: {}}]`))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 15, 58, 31, 845_000_000, time.Local)
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	message := func(typ event.Type, left bool) *event.Message {
		m := &event.Message{Type: typ, Time: at, Resource: deployments, LeftFilter: left}
		if !typ.IsControl() {
			m.Identity = object.Identity{Namespace: "shop", Name: "web"}
		}
		return m
	}
	var out bytes.Buffer
	p := newPrinter(&out, assemble.Places(cfg))
	for _, c := range []struct {
		sink string
		m    *event.Message
		want string
	}{
		{"js", message(event.Added, false), "15:58:31.845  added    deployments.apps shop/web  -> js: k8s.deployments.web\n"},
		{"js", message(event.Deleted, true), "15:58:31.845  left     deployments.apps shop/web  -> js: k8s.deployments.web\n"},
		{"lines", message(event.Updated, false), "15:58:31.845  updated  deployments.apps shop/web  -> lines\n"},
		{"lines", message(event.Gap, false), "15:58:31.845  gap      deployments.apps  -> lines\n"},
	} {
		out.Reset()
		if p.print(c.sink, c.m); out.String() != c.want {
			t.Errorf("got  %swant %s", out.String(), c.want)
		}
	}
	out.Reset()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { p.print("lines", message(event.Updated, false)) })
	}
	group.Wait()
	if lines := strings.Count(out.String(), " -> lines\n"); lines != 8 {
		t.Errorf("%d lines from 8 sinks at a time", lines)
	}
}

// run --print has one line for the initial list of a resource, with the number of its objects, and none if the list is
// empty.
func TestPrintedLists(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	listed := func(r schema.GroupVersionResource) *event.Message {
		return &event.Message{Type: event.Added, Resource: r, InitialList: true}
	}
	synced := func(r schema.GroupVersionResource, data string) *event.Message {
		return &event.Message{Type: event.Synced, Resource: r, Data: []byte(data)}
	}
	updated := &event.Message{Type: event.Updated, Resource: pods, Identity: object.Identity{Namespace: "a", Name: "b"}}
	type acknowledged struct {
		sink string
		m    *event.Message
	}
	for _, c := range []struct {
		name   string
		events []acknowledged
		want   []string
	}{
		{
			"list",
			[]acknowledged{{"js", listed(pods)}, {"js", listed(pods)}, {"js", synced(pods, "{}")}},
			[]string{"listed   pods (2)  -> js"},
		},
		{"empty list", []acknowledged{{"js", synced(pods, "{}")}}, nil},
		{
			"two lists",
			[]acknowledged{{"js", listed(pods)}, {"js", synced(pods, "{}")}, {"js", listed(pods)}, {"js", synced(pods, "{}")}},
			[]string{"listed   pods (1)  -> js", "listed   pods (1)  -> js"},
		},
		{
			"two resources",
			[]acknowledged{{"js", listed(pods)}, {"js", listed(nodes)}, {"js", synced(nodes, "{}")}},
			[]string{"listed   nodes (1)  -> js"},
		},
		{
			"two sinks",
			[]acknowledged{{"js", listed(pods)}, {"kafka", listed(pods)}, {"kafka", synced(pods, "{}")}},
			[]string{"listed   pods (1)  -> kafka"},
		},
		{
			"no synced event",
			[]acknowledged{{"js", listed(pods)}, {"js", updated}},
			[]string{"listed   pods (1)  -> js", "updated  pods a/b  -> js"},
		},
		{"resync", []acknowledged{{"js", synced(pods, `{"resync":true}`)}}, []string{"synced   pods  -> js"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			p := newPrinter(&out, nil)
			for _, e := range c.events {
				p.print(e.sink, e.m)
			}
			var got []string
			for line := range strings.Lines(out.String()) {
				_, line, _ = strings.Cut(strings.TrimSpace(line), "  ")
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
		})
	}
}
