package doctor

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
)

// The rows of the table in docs/operations.md: the memory limit, and the size of the checkpoint in MB.
func TestEstimate(t *testing.T) {
	for _, tt := range []struct {
		watches, objects, bytes int64
		limit, checkpoint       int64
	}{
		{20, 1_000, 2_500, 128 << 20, 4},
		{60, 20_000, 2_500, 160 << 20, 75},
		{300, 100_000, 8_000, 256 << 20, 1200},
	} {
		var s estimate
		for range tt.watches {
			s.add(estimate{watches: 1, objects: tt.objects / tt.watches, bytes: tt.objects / tt.watches * tt.bytes})
		}
		limit := 2 * s.memory(32<<20)
		if limit > tt.limit || limit < tt.limit*3/4 {
			t.Errorf("%d objects: a limit of %s, but the table has %s", tt.objects, size(limit), size(tt.limit))
		}
		if mb := (s.checkpoint() + 5e5) / 1e6; mb < tt.checkpoint*99/100 || mb > tt.checkpoint {
			t.Errorf("%d objects: a checkpoint of %d MB, but the table has %d", tt.objects, mb, tt.checkpoint)
		}
	}
}

// The size of objects is that of a sample, without managedFields; their number is that of all.
func TestSample(t *testing.T) {
	item := func(name, data string) string {
		return `{"metadata":{"name":"` + name + `","uid":"u","resourceVersion":"1","managedFields":[{"manager":"m"}]},"data":"` + data + `"}`
	}
	e := examining(t, answers{
		"GET /api/v1/pods": `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"c","remainingItemCount":998},` +
			`"items":[` + item(
			"a",
			"",
		) + "," + item(
			"b",
			strings.Repeat("x", 2000),
		) + `]}`,
		"WATCH /api/v1/pods": "{}",
	})
	pods := informer.Source{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	f, c := e.checkWatched(t.Context(), &fleet.Watched{Source: pods, Namespaced: true})
	if f.Detail != "1000 objects" || c.objects != 1000 || c.bytes < 1_050_000 || c.bytes > 1_100_000 {
		t.Errorf("%+v, %+v", f, c)
	}
	e.size.add(c)
	e.cfg.Sinks = make([]config.Sink, 2)
	e.estimateLoad()
	e.checkMemory()
	load, memory := e.report.Findings[0], e.report.Findings[1]
	if load.Step != "load" || load.Result != "ok" || !strings.HasPrefix(
		load.Detail,
		"for each 1000 changes per second about 0.13 cores, 1.1 MB/s from the API server (without managedFields), "+
			"2.1 MB/s to each sink, and 4.1 MB/s with 2 fsync calls per second to disk; ",
	) {
		t.Errorf("%+v", load)
	}
	if !strings.HasPrefix(memory.Detail, "1000 objects and buffers of 0 require a limit of 56Mi") {
		t.Errorf("%+v", memory)
	}
	e.cfg.Sinks = []config.Sink{{Actor: true, Buffer: config.Buffer{Bytes: 64 << 20}}}
	e.checkMemory()
	if f := e.report.Findings[2]; !strings.HasPrefix(f.Detail, "1000 objects and buffers of 128Mi ") {
		t.Errorf("with actor: %+v", f) // the buffer, what waits for its actor, and audit events
	}
	e.size.add(estimate{objects: 10, bytes: 1000, more: true})
	if got := e.size.String(); got != "more than 1010 objects" {
		t.Error(got)
	}
	forbidden := examining(t, answers{"GET /api/v1/pods": http.StatusForbidden, "WATCH /api/v1/pods": "{}"})
	if _, c := forbidden.checkWatched(t.Context(), &fleet.Watched{Source: pods}); c != (estimate{}) {
		t.Errorf("forbidden: %+v", c)
	}
	if forbidden.estimateLoad(); len(forbidden.report.Findings) > 0 {
		t.Errorf("without objects: %+v", forbidden.report.Findings)
	}
	if forbidden.checkMemory(); !strings.HasPrefix(
		forbidden.report.Findings[0].Detail,
		"an unknown number of objects and buffers of 32Mi ",
	) {
		t.Errorf("without objects: %+v", forbidden.report.Findings)
	}
}
