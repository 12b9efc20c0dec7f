package actors

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// BenchmarkActors measures how many changes per second one core can join: audit events are read from the journal, and
// joined with updates of 1,000 objects, half of which are proven at once. The others wait.
func BenchmarkActors(b *testing.B) {
	const changes, objects, batch = 8000, 1000, 400
	dir, log := b.TempDir(), slog.New(slog.DiscardHandler)
	store, err := checkpoint.Open(checkpoint.Options{Path: dir, ClusterName: "c", NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	journal, err := audit.OpenJournal(audit.JournalOptions{Dir: dir + "/audit", Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	defer journal.Close()
	states, events := make([]*object.Object, changes+objects), make([][]byte, 0, batch)
	state := func(n int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"o%d","namespace":"shop","uid":"u%[1]d","resourceVersion":"%d",`+
			`"creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"text":"%s"}}`, n%objects, n+1, strings.Repeat("x", 2000))
	}
	for n := range states {
		if states[n], err = object.New(state(n)); err != nil {
			b.Fatal(err)
		}
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for n := range changes {
		verb, request := "patch", []byte(`{"data":{}}`)
		if n%2 == 0 {
			verb, request = "update", state(n)
		}
		events = append(events, fmt.Appendf(nil, `{"auditID":"e%d","level":"RequestResponse","stage":"ResponseComplete",`+
			`"verb":%q,"requestURI":"/x","user":{"username":"user%d","groups":["devs"]},"sourceIPs":["10.0.0.1"],`+
			`"userAgent":"kubectl","objectRef":{"resource":"events","namespace":"shop","name":"o%d"},`+
			`"responseStatus":{"code":200},"requestObject":%s,"responseObject":%s,"requestReceivedTimestamp":%[7]q,`+
			`"stageTimestamp":%[7]q}`, n, verb, n%10, n%objects, request, state(n+objects), now))
		if len(events) == batch {
			if err := journal.Append(b.Context(), events); err != nil {
				b.Fatal(err)
			}
			events = events[:0]
		}
	}
	positions := tracker.New(tracker.Options{Store: store, Reading: b.Context(), Logger: log})
	answered := 0
	for b.Loop() {
		a := New(Options{Journal: journal, Tracker: positions, Wait: time.Hour, Notify: func() {}, Logger: log})
		k := &Asker{
			finder: a, source: informer.Source{Name: "configmaps", Resource: configMaps},
			status: func() informer.Status { return informer.Status{} },
		}
		ctx, cancel := context.WithCancel(b.Context())
		var group sync.WaitGroup
		group.Go(func() { a.follow(ctx) })
		var last *Question
		for n := range changes {
			k.OnUpdate(states[n], states[n+objects])
			if n%2 == 0 {
				last = k.Current
			}
			k.OnPosition("")
		}
		for tick := time.NewTicker(100 * time.Microsecond); last.Known() == nil; {
			<-tick.C
		}
		cancel()
		group.Wait()
		answered += changes
	}
	b.ReportMetric(float64(answered)/b.Elapsed().Seconds(), "changes/s")
}
