package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// enrichmentFor makes the enrichment for sinks with such needs, for which owners are awaited.
func enrichmentFor(ctx context.Context, needs enrich.Needs) *enrichment {
	awaited := map[string]bool{"replicasets.apps": true, "jobs.batch": true}
	return newEnrichment(ctx, Enrichment{Awaited: awaited}, []Sink{{Enrich: needs}}, func() {})
}

func about(resource, group string) *informer.Informer {
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	return informer.New(informer.Config{Source: informer.Source{Name: resource, Resource: gvr}})
}

// An informer that has reported its objects waits for the needed informers, but not too long.
func TestLearnedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := enrichmentFor(ctx, enrich.Needs{Owner: true})
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
			if got := <-done; got < want-5*learnPause || got > want+200*time.Millisecond {
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

// The first informer runs while the others are still being attached. It waits for them too.
func TestLearnedWaitsForInformersToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enrichmentFor(t.Context(), enrich.Needs{Owner: true})
		all := make(chan struct{})
		e.awaitLaunch = func() { <-all }
		e.attach(about("pods", ""))
		done := make(chan struct{})
		go func() { e.learned("pods"); close(done) }()
		synctest.Wait()
		e.attach(about("replicasets", "apps"))
		close(all)
		time.Sleep(time.Second) // of a synctest bubble
		select {
		case <-done:
			t.Error("the Pods did not wait for the ReplicaSets")
		default:
		}
		e.learned("replicasets")
		<-done
	})
}

func TestNoEnrichment(t *testing.T) {
	e := enrichmentFor(t.Context(), enrich.Needs{})
	if e != nil || e.forSink(enrich.Needs{Owner: true}) != nil {
		t.Error("nobody asks for it")
	}
	e.attach(about("pods", ""))
}

// Each sink receives the data that it requires, regardless of the other sinks.
func TestEnrichedForEach(t *testing.T) {
	e := enrichmentFor(t.Context(), enrich.Needs{Owner: true})
	for _, asks := range []bool{true, false} {
		if got := e.forSink(enrich.Needs{NamespaceLabels: asks}) != nil; got != asks {
			t.Errorf("asks: %t, gets: %t", asks, got)
		}
	}
}

// An object that leaves a selector is not deleted while another informer has it: its fact stays. When the last informer
// that has the object reports its removal, the fact is marked as deleted.
func TestLeftSelectorIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enrichmentFor(t.Context(), enrich.Needs{Owner: true})
		owned := func(uid string) *object.Object {
			o, err := object.New(
				[]byte(
					`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"` + uid + `","uid":"` + uid + `","resourceVersion":"1",` +
						`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"r"}]}}`,
				),
			)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		watching := func(source string, known ...*object.Object) *informer.Informer {
			pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
			i := informer.New(
				informer.Config{Source: informer.Source{Name: source, Resource: pods}, Known: known, ResumeAt: "1"},
			)
			e.attach(i)
			for _, o := range known {
				i.Handlers()[0].OnAdd(o, true)
			}
			return i
		}
		pod, namesake := owned("p"), owned("other")
		namesake.Name = pod.Name // it was deleted, and made again meanwhile
		selected, all := watching("pods with labels app=web", pod), watching("auxiliary pods", pod)
		watching("pods in a", namesake)
		afterwards := func(uid string) bool { // with a deletion, long after
			time.Sleep(2 * time.Hour)
			watching(uid, owned(uid)).DeleteAll()
			return e.index.Context(all.Resource(), pod, enrich.Needs{Owner: true}).Owner.UID == "r"
		}
		selected.DeleteAll()
		if !afterwards("x") {
			t.Error("a Pod that left a selector is not known any more")
		}
		all.DeleteAll()
		if afterwards("y") {
			t.Error("a Pod that was deleted is known forever")
		}
	})
}
