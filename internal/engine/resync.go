package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
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
	ctx       context.Context //nolint:containedctx // ends when no more changes are read, and with it each resync, whoever asked for it
	pipelines []*pipeline
	informers func() []*informer.Informer // that run
	log       *slog.Logger

	mu      sync.Mutex
	running map[string]time.Time // by sink: since when
}

func newResyncer(ctx context.Context, pipelines []*pipeline, informers func() []*informer.Informer, log *slog.Logger) *resyncer {
	return &resyncer{
		ctx: ctx, pipelines: pipelines, informers: informers, log: log, running: map[string]time.Time{},
	}
}

// Run resyncs at intervals until the context of the resyncer ends, and returns when no resync that it began is under way.
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
			r.resync([]*pipeline{p}, "interval", nil)
		}
	}
}

// find gives the pipelines of a sink, or all of them if the name is empty.
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

// resync resyncs the sinks, each at its own pace, and returns when all have ended. It calls report, unless that is nil, with the
// report of each sink as soon as there is one, one call at a time. why is for the log.
func (r *resyncer) resync(pipelines []*pipeline, why string, report func(control.ResyncReport)) {
	var group sync.WaitGroup
	var reporting sync.Mutex
	for _, p := range pipelines {
		group.Go(func() {
			outcome := r.resyncSink(p, why)
			if report != nil {
				reporting.Lock()
				defer reporting.Unlock()
				report(outcome)
			}
		})
	}
	group.Wait()
}

// resyncSink resyncs one sink, unless that is under way, and logs the beginning and the end.
func (r *resyncer) resyncSink(p *pipeline, why string) control.ResyncReport {
	log := p.log.With("why", why)
	log.Info("resync begins")
	began := time.Now()
	report := r.resyncExclusively(p)
	log = log.With("objects", report.Objects, "resources", report.Resources, "took", time.Since(began).Round(time.Millisecond))
	switch {
	case report.Error != "":
		log.Warn("resync did not come to its end", "err", report.Error)
	case len(report.Skipped) > 0:
		log.Warn("resync ended, without some resources", "skipped", report.Skipped)
	default:
		log.Info("resync ended")
	}
	return report
}

// resyncExclusively resyncs one sink, unless that is under way.
func (r *resyncer) resyncExclusively(p *pipeline) control.ResyncReport {
	r.mu.Lock()
	since, busy := r.running[p.name]
	if !busy {
		r.running[p.name] = time.Now()
	}
	r.mu.Unlock()
	if busy {
		return control.ResyncReport{Sink: p.name, Error: "a resync is under way since " + since.UTC().Format(time.RFC3339) + ": ask again when it has ended"}
	}
	defer r.end(p)
	p.metrics.Resyncs.Inc()
	report := control.ResyncReport{Sink: p.name}
	informers := r.informers()
	if len(informers) == 0 {
		report.Error = "nothing is watched yet"
		return report
	}
	for len(informers) > 0 {
		group := ofOneResource(informers)
		if err := r.resyncResource(p, group, &report); err != nil {
			if r.ctx.Err() != nil {
				report.Error = "the bridge is shutting down"
				return report
			}
			report.Skipped = append(report.Skipped, event.GroupResource(informers[0].Resource())+": "+err.Error())
		}
		informers = informers[len(group):]
	}
	return report
}

// begin waits until nothing is restated to a sink, and keeps others from beginning. Call end after it.
func (r *resyncer) begin(ctx context.Context, p *pipeline) error {
	for {
		r.mu.Lock()
		_, busy := r.running[p.name]
		if !busy {
			r.running[p.name] = time.Now()
		}
		r.mu.Unlock()
		if !busy {
			return nil
		}
		if err := pauseFor(ctx, introducePause); err != nil {
			return err
		}
	}
}

func (r *resyncer) end(p *pipeline) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, p.name)
}

// ofOneResource is the first informers that are of one resource: they follow each other.
func ofOneResource(informers []*informer.Informer) []*informer.Informer {
	resource := informers[0].Resource().GroupResource()
	n := slices.IndexFunc(informers, func(i *informer.Informer) bool { return i.Resource().GroupResource() != resource })
	if n < 0 {
		return informers
	}
	return informers[:n]
}

// restated is an informer and its listener for one sink.
type restated struct {
	informer *informer.Informer
	listener *listener
}

func (p *pipeline) sourcesOf(informers []*informer.Informer) (all []restated) {
	for _, i := range informers {
		for _, h := range i.Handlers() {
			if l, ok := h.(*listener); ok && l.pipeline == p {
				all = append(all, restated{i, l})
			}
		}
	}
	return all
}

// resyncResource re-sends what all informers of one resource know, waits until that is delivered, and sends a synced event. It
// sends none with an error: then not everything that exists was sent, and consumers would take the rest for deleted.
func (r *resyncer) resyncResource(p *pipeline, informers []*informer.Informer, report *control.ResyncReport) error {
	sources := p.sourcesOf(informers)
	if len(sources) == 0 {
		return nil
	}
	counters, since := sources[0].listener.counters, time.Now().Round(0)
	before := p.lossesOf(counters)
	objects, withheld := 0, 0
	var failed error
	for _, s := range sources {
		restating := &restating{listener: s.listener, since: since}
		failed = cmp.Or(failed, s.informer.Restate(r.ctx, restating))
		objects, withheld, since = objects+restating.objects, withheld+restating.withheld, restating.since
		report.Objects += restating.objects
	}
	switch {
	case failed != nil:
		return failed
	case withheld > 0:
		return fmt.Errorf("operations or when of the sink's filters keep %d of its objects back", withheld)
	}
	if err := p.delivered(r.ctx, counters, before); err != nil {
		return err
	}
	last := sources[len(sources)-1]
	marking := &restating{listener: last.listener}
	if err := last.informer.Turn(r.ctx, marking, func(resourceVersion string) { marking.finish(resourceVersion, objects, since) }); err != nil {
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

// serve answers a request for a resync with a line of JSON for each sink, when that sink was sent everything. The resync
// continues if the client has gone.
func (r *resyncer) serve(w http.ResponseWriter, request *http.Request) {
	pipelines, err := r.find(request.URL.Query().Get("sink"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	answer := json.NewEncoder(w)
	r.resync(pipelines, "request", func(report control.ResyncReport) {
		if answer.Encode(report) == nil { // who asked may be gone
			_ = http.NewResponseController(w).Flush()
		}
	})
}
