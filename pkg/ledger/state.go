package ledger

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Source is what one informer watches.
type Source struct {
	Name                                    string // any, unique; not empty
	Resource                                schema.GroupVersionResource
	Namespace, LabelSelector, FieldSelector string // empty: all
	// Scope says which of these objects are watched, as a string of the informer; empty: all.
	Scope string
	// Defined says that a CustomResourceDefinition defines the resource.
	Defined bool
}

// State is how far a source is settled.
type State struct {
	Source Source
	// ResourceVersion is the watermark: everything up to it is settled. Empty: there is none, and no row is to be used.
	ResourceVersion string
	// Sinks holds the watermark of each sink, which is not lower than ResourceVersion. A sink that is missing was sent
	// nothing; a sink whose watermark is empty may have been sent a part of its initial list.
	Sinks map[string]string
	// Refilters has the sinks whose filter changed, and that were not sent the difference yet.
	Refilters map[string]Refilter
}

// Refilter says by which filters a sink may know a source, if not by its present one.
type Refilter struct {
	// Filters are the configurations that the sink had since it was last sent everything of the source, or the
	// difference.
	Filters []string `json:"filters"`
	// Change names the last change of the configuration. No other change has the same name.
	Change string `json:"change"`
}

// Update is what became settled of one source, as it is written. Its State replaces the one before.
type Update struct {
	State
	// ReplaceRows removes the rows that there are before anything else.
	ReplaceRows bool
	Deletes     []string         // keys of rows
	Upserts     []*object.Object // rows; they are written after Deletes, and of those with one key the last counts
}

// Share is a part of a source: the rows for whose keys Has is true.
type Share struct {
	Source string
	Has    func(key string) bool
}
