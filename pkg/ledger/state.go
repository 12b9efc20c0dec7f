package ledger

import (
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Source is what one informer watches.
type Source = informer.Source

// State describes how far a source is settled. The store writes it as JSON.
type State struct {
	Source Source `json:"source"`
	// ResourceVersion is the watermark: all events up to it are settled. If it is empty, the source has no watermark and
	// its rows must not be used.
	ResourceVersion string `json:"resourceVersion"`
	// Sinks contains the watermarks of the sinks, which are not lower than ResourceVersion. If a sink is missing, no
	// events were sent to it. If a sink's watermark is empty, a part of its initial list may have been sent.
	Sinks map[string]string `json:"sinks"`
	// History names the history of etcd that the resourceVersions belong to: see event.Message. It is empty until etcd
	// is restored to an earlier revision.
	History string `json:"history,omitempty"`
	// Refilters contains the sinks with a changed filter, until each has settled the difference between the filters, and
	// until the source has brought everything that the process before the change may have sent.
	Refilters map[string]Refilter `json:"refilters,omitempty"`
}

// Refilter describes the filters, other than the current filter, with which a sink may have been sent the events of a
// source.
type Refilter struct {
	// Filters contains the filter configurations of the sink since the sink was last sent the whole initial list or
	// difference.
	Filters []string `json:"filters"`
	// Change is the unique name of the last change to the filter configuration.
	Change string `json:"change"`
	// Settled reports whether the sink has settled the difference. The sink may still have later states of objects, which
	// a process with one of Filters has sent and the source has not brought again.
	Settled bool `json:"settled,omitempty"`
	// Former contains the Filters that there were when the filter changed again after Settled was set.
	Former []string `json:"former,omitempty"`
}

// Update is a change to one source in the store. Its State replaces the stored State.
type Update struct {
	State
	// ReplaceRows means that all existing rows are removed before Deletes and Upserts are applied.
	ReplaceRows bool
	Deletes     []string         // keys of rows
	Upserts     []*object.Object // rows to write after Deletes; if several have the same key, the last one is stored
}
