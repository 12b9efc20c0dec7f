package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// A fuse of less than half an hour, a failure that does not go away and a loss matter more than an outage.
func TestSinkHealth(t *testing.T) {
	short, long := &control.Fuse{Seconds: 1700}, &control.Fuse{Seconds: 2000}
	problem := &control.Problem{}
	for _, test := range []struct {
		sink          control.Sink
		lasting, lost bool
		want          control.Health
	}{
		{control.Sink{Connected: true}, false, false, control.Healthy},
		{control.Sink{Connected: true, Fuse: long}, false, false, control.Waiting},
		{control.Sink{}, false, false, control.Waiting},
		{control.Sink{Problem: problem, Fuse: long}, false, false, control.Waiting},
		{control.Sink{Problem: problem, Fuse: long}, true, true, control.Failing},
		{control.Sink{Problem: problem, Fuse: long}, false, true, control.Lossy},
		{control.Sink{Problem: problem, Fuse: short}, true, true, control.AtRisk},
		{control.Sink{PausedSince: time.Now(), Fuse: long}, true, false, control.Idle},
		{control.Sink{PausedSince: time.Now(), Fuse: short}, false, false, control.AtRisk},
	} {
		if got := sinkHealth(&test.sink, test.lasting, test.lost); got != test.want {
			t.Errorf("%+v: %s, want %s", test, got, test.want)
		}
	}
}

func TestStatusOfSources(t *testing.T) {
	jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	since := time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		status       informer.Status
		blocking     string
		health       control.Health
		text, remedy string
	}{
		"synced":         {informer.Status{Synced: true}, "", control.Healthy, "", ""},
		"not yet synced": {informer.Status{}, "", control.Waiting, "", ""},
		"forbidden":      {informer.Status{Forbidden: true, LastError: "no"}, "", control.Failing, "no", "`bridge rbac`"},
		"need not be readable": {
			informer.Status{Forbidden: true, Excused: true, LastError: "no"}, "", control.Idle, "no", "`bridge rbac`",
		},
		"unreachable": {informer.Status{Synced: true, LastError: "EOF"}, "", control.Waiting, "EOF", "`kubectl get --raw /readyz`"},
		"silent":      {informer.Status{Synced: true, Stale: true}, "", control.Failing, "silent", "DeltabridgeWatchSilent"},
		"held up":     {informer.Status{Synced: true, Stale: true}, "audit", control.Waiting, "it waits for sink audit", "this sink"},
	} {
		i := test.status
		i.Name, i.Resource, i.Namespace, i.FailingSince, i.LastContact = "jobs.batch", jobs, "shop", since, since
		s := sourceStatus(&i, 1.5, test.blocking)
		if s.Name != "jobs.batch" || s.Resource != "jobs.batch" || s.Namespace != "shop" || s.Rate != 1.5 ||
			s.Health != test.health {
			t.Errorf("%s: %+v", name, s)
		}
		switch {
		case (s.Problem == nil) != (test.text == ""):
			t.Errorf("%s: problem %+v", name, s.Problem)
		case s.Problem != nil && (!strings.Contains(s.Problem.Text, test.text) || !strings.Contains(s.Problem.Remedy, test.remedy) ||
			!s.Problem.Since.Equal(since)):
			t.Errorf("%s: %+v", name, s.Problem)
		}
	}
	if s := sourceStatus(&informer.Status{}, -1, ""); s.Rate != 0 {
		t.Errorf("the informer has a predecessor: %+v", s)
	}
}

// What the bridge is ready without does not look as if its list were missing, unless it was listed before.
func TestSyncedOfExcusedInformers(t *testing.T) {
	resource := func(name string) schema.GroupVersionResource { return schema.GroupVersionResource{Resource: name} }
	r := prometheus.NewRegistry()
	r.MustRegister(New(Options{WithoutTracker: true, Informers: func() []informer.Status {
		return []informer.Status{
			{Resource: resource("excused"), Forbidden: true, Excused: true},
			{Resource: resource("later"), Forbidden: true, Excused: true, Synced: true},
			{Resource: resource("required"), Forbidden: true},
		}
	}}))
	const rows = `
# HELP deltabridge_informer_forbidden 1 if RBAC forbids to list or watch the resource.
# TYPE deltabridge_informer_forbidden gauge
deltabridge_informer_forbidden{resource="excused",selector="",watched_namespace=""} 1
deltabridge_informer_forbidden{resource="later",selector="",watched_namespace=""} 1
deltabridge_informer_forbidden{resource="required",selector="",watched_namespace=""} 1
# HELP deltabridge_informer_synced 1 if the initial list was handed to all sinks. Absent while the bridge is ready ` +
		"without the list, because the resource is forbidden and `watch` does not name it without wildcards." + `
# TYPE deltabridge_informer_synced gauge
deltabridge_informer_synced{resource="later",selector="",watched_namespace=""} 1
deltabridge_informer_synced{resource="required",selector="",watched_namespace=""} 0
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(rows),
		"deltabridge_informer_forbidden", "deltabridge_informer_synced"); err != nil {
		t.Error(err)
	}
}
