package main

import (
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// recorder is the first handler of each informer. It notes in the ledger what a change makes of a row, before the
// listeners send it, and how far the informer is, after they have.
type recorder struct{ ledger *checkpoint.Ledger }

var (
	_ cache.ResourceEventHandler = recorder{}
	_ informer.Observer          = recorder{}
	_ informer.Positioner        = recorder{}
)

func (r recorder) OnAdd(obj any, initial bool) {
	if !initial { // the first list was stored as a whole
		r.note(obj)
	}
}

func (r recorder) OnUpdate(_, newObj any) { r.note(newObj) }

func (r recorder) OnDelete(obj any) { r.ledger.Note(checkpoint.Key(obj.(*object.Object)), nil) }

// OnPosition implements informer.Positioner.
func (r recorder) OnPosition(resourceVersion string) { r.ledger.Reached(resourceVersion) }

// OnSynced implements informer.Observer.
func (r recorder) OnSynced(string, int) {}

// OnGap implements informer.Observer.
func (r recorder) OnGap(from, to, _ string) {
	if wentBack(from, to) {
		r.ledger.StartOver()
	}
}

// wentBack reports whether a list is older than what was seen before it: the cluster was restored from a backup, and its
// resourceVersions begin again there.
func wentBack(from, to string) bool {
	return to != "" && from != to && laterVersion(from, to) == from
}

func (r recorder) note(obj any) {
	o := obj.(*object.Object)
	r.ledger.Note(checkpoint.Key(o), o)
}

// past reports whether a position has reached a floor. No floor is always reached. What does not compare with the floor counts as
// past it: a change is rather told twice than kept back for ever.
func past(floor, position string) bool {
	if floor == "" || position == "" {
		return floor == ""
	}
	order, err := resourceversion.CompareResourceVersion(position, floor)
	return err != nil || order >= 0
}

// laterVersion is the later of two resourceVersions of one resource; empty is earlier than any.
func laterVersion(a, b string) string {
	if a == "" {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order < 0 {
		return b
	}
	return a
}
