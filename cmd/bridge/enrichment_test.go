package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

func enrichmentFor(t *testing.T, ctx context.Context, text string) *enrichment {
	t.Helper()
	cfg, err := config.Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return newEnrichment(ctx, cfg, nil)
}

func about(resource, group string) *informer.Informer {
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	return informer.New(informer.Config{Resource: gvr, Source: informer.Source{Name: resource, Resource: gvr}})
}

// Who has learned waits for those that are needed, and no longer than is good.
func TestLearnedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := enrichmentFor(t, ctx, "sinks: [{name: a, stdout: {}, enrich: {owner: true}}]")
		for _, i := range []*informer.Informer{about("replicasets", "apps"), about("jobs", "batch"), about("pods", ""), about("widgets", "example.com")} {
			e.attach(i)
		}
		waited := func(source string, want time.Duration, meanwhile func()) {
			t.Helper()
			began := time.Now()
			done := make(chan time.Duration, 1)
			go func() { e.learned(source); done <- time.Since(began) }()
			if meanwhile != nil {
				time.Sleep(time.Second) // of a synctest bubble
				meanwhile()
			}
			if got := <-done; got < want || got > want+200*time.Millisecond {
				t.Errorf("%s waited for %s, want %s", source, got, want)
			}
		}
		// Nobody waits for Pods, of which owners are not asked, nor for what may own something.
		waited("pods", 2*time.Second, func() {
			go e.learned("replicasets")
			time.Sleep(time.Second)
			e.learned("jobs")
		})
		waited("widgets", 0, nil)
		e.attach(about("replicasets", "apps")) // another one, in another namespace
		waited("pods", 8*time.Second, nil)     // what is left of ten
		waited("widgets", 0, nil)
		cancel()
		synctest.Wait()
	})
}

func TestNoEnrichment(t *testing.T) {
	e := enrichmentFor(t, t.Context(), "sinks: [{name: a, stdout: {}}]")
	s := config.DefaultSink()
	if e != nil || e.forSink(&s) != nil {
		t.Error("nobody asks for it")
	}
	e.attach(about("pods", ""))
	e.firstList(informer.Source{}, nil)
}

// Sinks are given what they ask for, whatever the others do.
func TestEnrichedForEach(t *testing.T) {
	e := enrichmentFor(t, t.Context(), "sinks: [{name: a, stdout: {}, enrich: {owner: true}}]")
	for _, asks := range []bool{true, false} {
		s := config.DefaultSink()
		s.Enrich.NamespaceLabels = asks
		if got := e.forSink(&s) != nil; got != asks {
			t.Errorf("asks: %t, gets: %t", asks, got)
		}
	}
}
