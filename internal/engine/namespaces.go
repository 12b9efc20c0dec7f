package engine

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// namespaces follows the labels of all namespaces, for filters with a namespaceSelector. It has a watch of its own that
// stores nothing, so what it knows is never older than the start of the process.
type namespaces struct {
	informer *informer.Informer
	changed  chan struct{} // contains an element when the labels of a namespace may have changed
}

// buildNamespaces creates what follows the labels of namespaces, if a filter requires it.
func (e *Engine) buildNamespaces() {
	if !slices.ContainsFunc(e.pipelines, func(p *pipeline) bool { return p.filter.SelectsNamespaces() }) {
		return
	}
	source := informer.Source{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}
	listWatch := informer.ListWatch(e.client, source)
	listWatch.MetadataOnly = true
	n := &namespaces{changed: make(chan struct{}, 1)}
	n.informer = informer.New(informer.Config{
		Source: source, ListWatch: listWatch, Connector: e.connector,
		Logger: e.options.Logger.With("resource", "namespaces", "for", "namespaceSelector"),
	})
	n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { n.change() },
		UpdateFunc: func(_, _ any) { n.change() }, // a deleted namespace stays selected
	})
	e.namespaces = n
}

func (n *namespaces) change() {
	select {
	case n.changed <- struct{}{}:
	default: // a change is already waiting
	}
}

// existing returns the labels of all namespaces.
func (n *namespaces) existing() filter.Namespaces {
	existing := filter.Namespaces{}
	for _, o := range n.informer.Objects() {
		existing[o.Name] = o.GetLabels()
	}
	return existing
}

// notReady returns why the labels of namespaces are not known, or an empty string. A nil *namespaces is valid.
func (n *namespaces) notReady() string {
	if n == nil {
		return ""
	}
	switch status := n.informer.Status(); {
	case status.Synced && !status.Stale && !status.Forbidden:
		return ""
	case status.LastError != "":
		return "cannot read the labels of namespaces, which a namespaceSelector requires: " + status.LastError
	default:
		return "the labels of namespaces, which a namespaceSelector requires, have not been read yet"
	}
}

// awaitNamespaces waits until the labels of all namespaces are known, and sets the filters that depend on them. It must
// be called before Tracker.Identify, which compares the filters with those of the previous process. It returns false if
// reading ends before.
func (e *Engine) awaitNamespaces() bool {
	if e.namespaces == nil {
		return true
	}
	const interval = 5 * settledPause
	err := wait.PollUntilContextCancel(e.reading, interval, true, func(context.Context) (bool, error) {
		return e.namespaces.informer.HasSynced(), nil
	})
	if err != nil {
		return false
	}
	existing := e.namespaces.existing()
	for _, p := range e.pipelines {
		p.filter = p.filter.WithNamespaces(existing, func(string) bool { return true })
		e.tracker.SetFilter(p.Name, filterText(p.filter.Rules()))
	}
	return true
}

// followNamespaces changes the filters when the labels of namespaces change, until reading ends.
func (e *Engine) followNamespaces() {
	if e.namespaces == nil {
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-e.reading.Done():
			return
		case <-e.namespaces.changed:
		}
		existing := e.namespaces.existing()
		for _, p := range e.pipelines {
			for _, l := range p.selectNamespaces(existing) {
				group.Go(func() { l.followFilter(e.reading) })
			}
		}
	}
}

// selectNamespaces changes the pipeline's filter if it selects other namespaces now, and returns the listeners that
// must send the difference. When it returns, the checkpoint contains the change: if the process is killed from now on,
// the next one knows by which filters the sink may have been sent events.
func (p *pipeline) selectNamespaces(existing filter.Namespaces) (affected []*listener) {
	p.filtering.Lock()
	defer p.filtering.Unlock()
	next := p.filter.WithNamespaces(existing, func(string) bool { return true })
	if next == p.filter {
		return nil
	}
	next = p.filter.WithNamespaces(existing, p.knownNamespaces())
	affects := func(source informer.Source) bool {
		l, attached := p.attached[source.Name]
		return next.For(source.Resource).SelectsNamespaces() && (l != nil || !attached)
	}
	if !p.tracker.ChangeFilter(p.Name, filterText(next.Rules()), affects) {
		return nil
	}
	p.filter = next
	for _, l := range p.attached {
		if l != nil && affects(l.source) {
			affected = append(affected, l)
		}
	}
	p.Log.Info("other namespaces are selected by their labels, sending added and leave events for their objects")
	return affected
}

// knownNamespaces returns a function that reports whether an object in a namespace is known.
func (p *pipeline) knownNamespaces() func(namespace string) bool {
	known := sync.OnceValue(func() map[string]bool {
		names := map[string]bool{}
		for _, l := range p.attached {
			if l == nil {
				continue
			}
			for _, o := range l.informer.Objects() {
				names[o.Namespace] = true
			}
		}
		return names
	})
	return func(namespace string) bool { return known()[namespace] }
}

// withSelection returns rules with the namespaces that they selected in the previous process. text is the filter's
// string form at that time.
func withSelection(rules []filter.Rule, text string) []filter.Rule {
	var before []filter.Rule
	_ = json.Unmarshal([]byte(text), &before) // without a valid text, nothing was selected
	return filter.Selection(rules, before)
}

// followFilter sends the difference between the listener's filter and that of its pipeline, as soon as the listener has
// sent what it has to send before.
func (l *listener) followFilter(ctx context.Context) {
	_ = l.informer.Turn(ctx, filterTurn{l}, func(string) { // fails only if no more changes follow
		l.pipeline.filtering.Lock()
		next := l.pipeline.filter.For(l.source.Resource)
		l.pipeline.filtering.Unlock()
		l.changeFilter(next, l.ledger.Refilter(l.pipeline.Name).Change)
	})
}

// filterTurn decides when a listener can change its filter.
type filterTurn struct{ *listener }

var _ informer.Restater = filterTurn{}

// MayRestate implements informer.Restater.
func (t filterTurn) MayRestate() bool {
	// Nothing was sent yet if the informer has no predecessor and begins with a list.
	beginsWithList := t.position == "" && !t.informer.Relists() && t.succeeds == nil
	ready := t.informer.HasSynced() && !t.IsBehind() || !t.informer.HasSynced() && beginsWithList
	return ready && t.ctx.Err() == nil && t.refilter == nil && !t.partial
}

// OnRestate implements informer.Restater. It is not called.
func (filterTurn) OnRestate(*object.Object) {}

// changeFilter changes the listener's filter and sends the difference. change is the name of the change. It must be
// called while no handler of the informer is running.
func (l *listener) changeFilter(next *filter.ResourceFilter, change string) {
	l.OnCaughtUp() // because its turn has come
	l.mu.Lock()
	defer l.mu.Unlock()
	earlier := l.filter
	l.filter, l.change = next, change
	if !l.informer.HasSynced() {
		return // nothing was sent yet, and the initial list has this filter
	}
	l.refilter, l.inList = &refilter{change: change, running: true}, true
	l.pipeline.progress.attach(l.source)
	for _, o := range l.informer.Objects() {
		if l.ctx.Err() != nil {
			return // the difference is sent from the beginning after a restart
		}
		if before := earlier.Belongs(o); before != l.filter.Belongs(o) && !mutant.On("relabel-lost") {
			l.pass(func() { l.difference(o, o, before, before) })
		}
	}
	l.refilter, l.inList = nil, false
	l.ledger.FinishRefilter(l.pipeline.Name, change, false)
}
