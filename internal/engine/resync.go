package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// ending is the answer to requests after reading has ended.
const ending = "the bridge is shutting down, or loads a changed configuration: try again"

// resyncer re-sends all known objects to sinks, at the configured intervals and on request, and serves the control
// socket. It is safe for concurrent use.
type resyncer struct {
	// ctx ends when no more changes are read. Its end also ends all resyncs.
	ctx       context.Context //nolint:containedctx // Run and resync are called without one
	pipelines []*pipeline
	informers func() []*informer.Informer // the running informers
}

// Run resyncs sinks at the configured intervals until ctx ends. It returns when all resyncs that it started have ended.
func (r *resyncer) Run() {
	var group sync.WaitGroup
	defer group.Wait()
	for _, p := range r.pipelines {
		if p.Resync == 0 {
			continue
		}
		group.Go(func() {
			_ = wait.PollUntilContextCancel(r.ctx, p.Resync, false, func(context.Context) (bool, error) {
				r.resyncSink(p, "interval")
				return false, nil
			})
		})
	}
}

// find returns the pipeline of a sink.
func (r *resyncer) find(sink string) (*pipeline, error) {
	var names []string
	for _, p := range r.pipelines {
		if p.Name == sink {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("there is no sink %q; existing sinks: %s", sink, strings.Join(names, ", "))
}

// resyncSink resyncs one sink. If a resync of the sink is already running, it returns a report with an error. why is
// the reason that is logged.
func (r *resyncer) resyncSink(p *pipeline, why string) control.ResyncReport {
	log := p.Log.With("why", why)
	log.Info("resync started")
	began := time.Now()
	report := control.ResyncReport{Sink: p.Name}
	select {
	case p.restating <- struct{}{}:
		r.resyncResources(p, &report)
		<-p.restating
	default:
		report.Error = "a resync is already running: try again when it has ended"
	}
	log = log.With("objects", report.Objects, "resources", report.Resources,
		"took", time.Since(began).Round(time.Millisecond))
	switch {
	case report.Error != "":
		log.Warn("resync failed", "err", report.Error)
	case len(report.Skipped) > 0:
		log.Warn("resync finished, some resources were skipped", "skipped", report.Skipped)
	default:
		log.Info("resync finished")
	}
	return report
}

func (r *resyncer) resyncResources(p *pipeline, report *control.ResyncReport) {
	informers := r.informers()
	if len(informers) == 0 {
		report.Error = "nothing is watched yet"
		return
	}
	for _, sources := range p.listeners(informers) {
		if err := p.resyncResource(r.ctx, sources, report); err != nil {
			if r.ctx.Err() != nil {
				report.Error = ending
				return
			}
			report.Skipped = append(report.Skipped, event.GroupResource(sources[0].source.Resource)+": "+err.Error())
		}
	}
}

// listeners returns the listeners that connect informers to the pipeline, grouped by resource. The informers of one
// resource must be adjacent.
func (p *pipeline) listeners(informers []*informer.Informer) (groups [][]*listener) {
	for _, i := range informers {
		for _, h := range i.Handlers() {
			l, ok := h.(*listener)
			last := len(groups) - 1
			switch {
			case !ok || l.pipeline != p:
			case last >= 0 && groups[last][0].source.Resource.GroupResource() == l.source.Resource.GroupResource():
				groups[last] = append(groups[last], l)
			default:
				groups = append(groups, []*listener{l})
			}
		}
	}
	return groups
}

// resyncResource re-sends the objects that all informers of one resource know, waits until the objects are delivered,
// and sends a synced event. After an error it does not send the synced event, because consumers would conclude that
// every object that was not re-sent was deleted.
func (p *pipeline) resyncResource(ctx context.Context, sources []*listener, report *control.ResyncReport) error {
	r := &restating{since: time.Now().Round(0)}
	check := p.lossCheck(sources[0].counters)
	err := r.restate(ctx, sources)
	report.Objects += r.objects
	switch {
	case err != nil:
		return err
	case r.suppressed > 0:
		return fmt.Errorf("%d objects of the resource are suppressed by `operations` or `when` in the sink's filters",
			r.suppressed)
	}
	if err := p.awaitSettled(ctx, check); err != nil {
		return err
	}
	if err := r.finish(ctx, sources); err != nil {
		return err
	}
	report.Resources++
	return nil
}

// Commands returns the handler for /api/resync, /api/pause and /api/resume. The control socket has the same handler.
// The caller decides which requests it is given.
func (e *Engine) Commands() http.Handler { return e.resyncs.handler() }

func (r *resyncer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/resync", r.serve)
	mux.HandleFunc("GET /api/paused", r.servePaused)
	mux.HandleFunc("POST /api/pause", r.servePause(true))
	mux.HandleFunc("POST /api/resume", r.servePause(false))
	return mux
}

// serve handles a resync request for one sink, or for all sinks if the request names none. It resyncs the sinks
// concurrently. The response contains one line of JSON per sink, written when the resync of that sink has ended. The
// resync continues if the client disconnects.
func (r *resyncer) serve(w http.ResponseWriter, request *http.Request) {
	pipelines := slices.DeleteFunc(slices.Clone(r.pipelines), func(p *pipeline) bool { return p.audit != nil })
	if sink := request.URL.Query().Get("sink"); sink != "" {
		p, err := r.find(sink)
		if err == nil && p.audit != nil {
			err = fmt.Errorf("sink %s is sent audit events, and API servers send these only once", sink)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		pipelines = []*pipeline{p}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	reports := make(chan control.ResyncReport)
	for _, p := range pipelines {
		go func() { reports <- r.resyncSink(p, "request") }()
	}
	answer := json.NewEncoder(w)
	for range pipelines {
		if answer.Encode(<-reports) == nil { // writing fails if the client has disconnected
			_ = http.NewResponseController(w).Flush()
		}
	}
}
