package engine

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Recorder is the first handler of each informer. It notes in the ledger what a change makes of a row, before other
// handlers send it, and how far the informer is, after they have.
type Recorder struct {
	ctx    context.Context //nolint:containedctx // client-go's handlers are called without one
	engine *Engine
	ledger *checkpoint.Ledger
}

var (
	_ cache.ResourceEventHandler = Recorder{}
	_ informer.Observer          = Recorder{}
	_ informer.Positioner        = Recorder{}
)

// Recorder of a source that was resumed. ctx ends when no more changes are read.
func (e *Engine) Recorder(ctx context.Context, source string) Recorder {
	return Recorder{ctx, e, e.Ledger(source)}
}

// OnAdd implements cache.ResourceEventHandler.
func (r Recorder) OnAdd(obj any, initial bool) {
	if !initial { // the first list was stored as a whole
		o := obj.(*object.Object)
		r.ledger.Add(checkpoint.Key(o), o)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (r Recorder) OnUpdate(_, newObj any) {
	o := newObj.(*object.Object)
	r.ledger.Note(checkpoint.Key(o), o)
}

// OnDelete implements cache.ResourceEventHandler.
func (r Recorder) OnDelete(obj any) { r.ledger.Note(checkpoint.Key(obj.(*object.Object)), nil) }

// OnPosition implements informer.Positioner. It waits while the ledgers hold too much.
func (r Recorder) OnPosition(resourceVersion string) {
	r.ledger.Reached(resourceVersion)
	r.engine.makeRoom(r.ctx, r.ledger)
}

// OnSynced implements informer.Observer.
func (r Recorder) OnSynced(string, int) {}

// OnGap implements informer.Observer.
func (r Recorder) OnGap(from, to, _ string) {
	if WentBack(from, to) {
		r.ledger.StartOver()
	}
}

// WentBack reports whether a list is older than what was seen before it: etcd was restored to an earlier revision, and
// resourceVersions begin again there.
func WentBack(from, to string) bool {
	return to != "" && from != to && later(from, to) == from
}

// Past reports whether a position has reached a floor. No floor is always reached. A position that does not compare with
// the floor counts as past it: it is better to send a change twice than never.
func Past(floor, position string) bool {
	if floor == "" || position == "" {
		return floor == ""
	}
	order, err := resourceversion.CompareResourceVersion(position, floor)
	return err != nil || order >= 0
}

// later is the later of two resourceVersions of one resource; empty is earlier than any.
func later(a, b string) string {
	if a == "" {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order < 0 {
		return b
	}
	return a
}
