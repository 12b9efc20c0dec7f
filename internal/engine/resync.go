package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// resyncer re-sends to sinks what exists: at the intervals of the configuration, and on request. It is safe for
// concurrent use.
type resyncer struct {
	// ctx ends when no more changes are read, and with it each resync.
	ctx       context.Context //nolint:containedctx // of Run
	pipelines []*pipeline
	informers func() []*informer.Informer // that run
}

// Run resyncs at intervals until the context of the resyncer ends, and returns when all resyncs that it began have
// ended.
func (r *resyncer) Run() {
	var group sync.WaitGroup
	defer group.Wait()
	for _, p := range r.pipelines {
		if p.resync > 0 {
			group.Go(func() { r.repeat(p) })
		}
	}
	<-r.ctx.Done()
}

func (r *resyncer) repeat(p *pipeline) {
	ticker := time.NewTicker(p.resync)
	defer ticker.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
			r.resyncSink(p, "interval")
		}
	}
}

// find returns the pipeline of a sink, or all of them if the name is empty.
func (r *resyncer) find(sink string) ([]*pipeline, error) {
	if sink == "" {
		return r.pipelines, nil
	}
	var names []string
	for _, p := range r.pipelines {
		if p.name == sink {
			return []*pipeline{p}, nil
		}
		names = append(names, p.name)
	}
	return nil, fmt.Errorf("there is no sink %q; there are %s", sink, strings.Join(names, ", "))
}

// resync resyncs sinks on request, each at its own pace, and returns when all have ended. It calls report with the
// report of each sink as soon as there is one, one call at a time.
func (r *resyncer) resync(pipelines []*pipeline, report func(control.ResyncReport)) {
	var group sync.WaitGroup
	var reporting sync.Mutex
	for _, p := range pipelines {
		group.Go(func() {
			outcome := r.resyncSink(p, "request")
			reporting.Lock()
			defer reporting.Unlock()
			report(outcome)
		})
	}
	group.Wait()
}

// resyncSink resyncs one sink, unless a resync is under way. why is for the log.
func (r *resyncer) resyncSink(p *pipeline, why string) control.ResyncReport {
	log := p.log.With("why", why)
	log.Info("resync begins")
	began := time.Now()
	report := control.ResyncReport{Sink: p.name}
	select {
	case p.restating <- struct{}{}:
		r.resyncResources(p, &report)
		<-p.restating
	default:
		report.Error = "a resync is under way: ask again when it has ended"
	}
	log = log.With(
		"objects",
		report.Objects,
		"resources",
		report.Resources,
		"took",
		time.Since(began).Round(time.Millisecond),
	)
	switch {
	case report.Error != "":
		log.Warn("resync was not finished", "err", report.Error)
	case len(report.Skipped) > 0:
		log.Warn("resync finished, some resources were skipped", "skipped", report.Skipped)
	default:
		log.Info("resync ended")
	}
	return report
}

func (r *resyncer) resyncResources(p *pipeline, report *control.ResyncReport) {
	p.metrics.Resyncs.Inc()
	groups := byResource(r.informers())
	if len(groups) == 0 {
		report.Error = "nothing is watched yet"
		return
	}
	for _, group := range groups {
		if err := p.resyncResource(r.ctx, group, report); err != nil {
			if r.ctx.Err() != nil {
				report.Error = "the bridge is shutting down"
				return
			}
			report.Skipped = append(report.Skipped, event.GroupResource(group[0].Resource())+": "+err.Error())
		}
	}
}

// byResource groups informers by their resource. Those of one resource follow each other.
func byResource(informers []*informer.Informer) (groups [][]*informer.Informer) {
	for _, i := range informers {
		last := len(groups) - 1
		if last >= 0 && groups[last][0].Resource().GroupResource() == i.Resource().GroupResource() {
			groups[last] = append(groups[last], i)
		} else {
			groups = append(groups, []*informer.Informer{i})
		}
	}
	return groups
}

// source is an informer and its listener for one sink.
type source struct {
	informer *informer.Informer
	listener *listener
}

func (p *pipeline) sourcesOf(informers []*informer.Informer) (all []source) {
	for _, i := range informers {
		for _, h := range i.Handlers() {
			if l, ok := h.(*listener); ok && l.pipeline == p {
				all = append(all, source{i, l})
			}
		}
	}
	return all
}

// resyncResource re-sends what all informers of one resource know, waits until that is delivered, and sends a synced
// event. It sends none with an error: then not everything that exists was sent, and consumers would take the rest for
// deleted.
func (p *pipeline) resyncResource(ctx context.Context, group []*informer.Informer, report *control.ResyncReport) error {
	sources := p.sourcesOf(group)
	if len(sources) == 0 {
		return nil
	}
	counters, r := sources[0].listener.counters, &restating{since: time.Now().Round(0)}
	before := p.lossesOf(counters)
	err := r.restate(ctx, sources)
	report.Objects += r.objects
	switch {
	case err != nil:
		return err
	case r.suppressed > 0:
		return fmt.Errorf("operations or when of the sink's filters suppress %d of its objects", r.suppressed)
	}
	if err := p.delivered(ctx, counters, before); err != nil {
		return err
	}
	if err := r.finish(ctx, sources); err != nil {
		return err
	}
	report.Resources++
	return nil
}

// handler serves commands.
func (r *resyncer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /resync", r.serve)
	return mux
}

// serve answers a request for a resync with a line of JSON for each sink, when that sink was sent everything. The
// resync continues if the client has gone.
func (r *resyncer) serve(w http.ResponseWriter, request *http.Request) {
	pipelines, err := r.find(request.URL.Query().Get("sink"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	answer := json.NewEncoder(w)
	r.resync(pipelines, func(report control.ResyncReport) {
		if answer.Encode(report) == nil { // the client may be gone
			_ = http.NewResponseController(w).Flush()
		}
	})
}
