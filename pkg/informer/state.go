package informer

import "github.com/deltabridge/deltabridge/pkg/object"

// State stores what is known of the sources of a fleet, for a restart. The fleet and its informers call it and its
// Records before they call any handler about the same change.
type State interface {
	// Remembered returns the sources that the previous process watched and this one has not resumed. Other sources may
	// take over their objects. Objects that no scope selects any more have left. Objects whose definition is gone are
	// deleted.
	Remembered() []Source
	// TakeOver makes shares of remembered sources known objects of another source; into.Scope is the scope of all its
	// known objects then. It is called before Resume of that source, and returns after the change is stored.
	TakeOver(into Source, shares []Share)
	// Resume returns what is known of a source. It is called before the handlers of its informer are added.
	Resume(Source) Memory
	// Record returns the record of a source that was resumed.
	Record(Source) Record
	// Removed is called after the informer of a resource that is gone from the cluster has ended and handed on the last
	// changes. Each call is made from its own goroutine.
	Removed(*Informer)
	// Forget is called for each remembered source that is not watched any more, after its last object was handed on.
	Forget(source string)
}

// Memory is what a [State] knows of a source.
type Memory struct {
	Known []*object.Object // the objects that the handlers were given
	At    string           // the resourceVersion of the state in Known; empty if nothing is known
	Scope string           // Source.Scope at that time
	// GoesOn says that this process has resumed the source before: what it has handed on since then still counts.
	GoesOn bool
}

// Share is a part of a remembered source: the objects in the namespaces for which In is true.
type Share struct {
	Source string
	In     func(namespace string) bool
}

// Record stores what an informer is about to hand on, and the bytes of its objects. A handler may fetch the bytes of
// each state that it was given: the first list is stored as a whole, and each change is recorded before any handler is
// called.
type Record interface {
	Bodies
	// FirstList stores the first list before any object is handed on. It is not called if the informer resumes. It
	// returns false if the process ends before the list is stored; then nothing is handed on.
	FirstList(objects []*object.Object, resourceVersion string) bool
	// Entering stores the objects of a list of another scope that were not known (see Config.Relist), before any
	// difference is handed on. It returns false if the process ends before they are stored; then nothing is handed on.
	Entering(objects []*object.Object) bool
	// Added, Updated and Deleted record each later change.
	Added(o *object.Object)
	Updated(o *object.Object)
	Deleted(last *object.Object)
	// Gap is called before the changes of a re-list: see Observer.OnGap.
	Gap(from, to string)
	// Reached is called after each change, each list and each bookmark: everything up to resourceVersion was handed on.
	// It may wait; the informer reads nothing meanwhile.
	Reached(resourceVersion string)
}

// noRecord is the record of an informer whose objects stay in memory. It records nothing.
type noRecord struct{}

func (noRecord) FirstList([]*object.Object, string) bool { return true }
func (noRecord) Entering([]*object.Object) bool          { return true }
func (noRecord) Added(*object.Object)                    {}
func (noRecord) Updated(*object.Object)                  {}
func (noRecord) Deleted(*object.Object)                  {}
func (noRecord) Gap(string, string)                      {}
func (noRecord) Reached(string)                          {}
func (noRecord) Fetch(*object.Object) ([]byte, error)    { return nil, nil }
func (noRecord) Stage() Stage                            { return nil }

// FirstLister is an optional interface of handlers. OnFirstList is given the whole first list, or all that is known at
// the start, before any handler is given a part of it.
type FirstLister interface {
	OnFirstList(objects []*object.Object)
}
