package informer

import "github.com/deltabridge/deltabridge/pkg/object"

// State keeps what is known of the sources of a fleet over restarts. The fleet and its informers call it, and what it gives them, before any
// handler hears of the same thing.
type State interface {
	// Remembered are sources that an earlier process watched and this one has not resumed. What other sources watch now they take
	// over; what no scope asks for any more has left; those whose resource is gone with its definition are handed on as deleted.
	Remembered() []Source
	// TakeOver makes shares of remembered sources known objects of another one, whose Scope is that of what it knows then. It is
	// called before Resume of that source, and returns when that is stored.
	TakeOver(into Source, shares []Share)
	// Resume gives what is known of a source. It is called before the handlers of its informer are added.
	Resume(Source) Memory
	// Record is that of a source that was resumed.
	Record(Source) Record
	// Removed is told of the informer of a resource that is gone from the cluster, when it has ended and handed on what was left.
	// Each call is made from a goroutine of its own.
	Removed(*Informer)
	// Forget is called for each remembered source that is watched no more, after the last object was handed on.
	Forget(source string)
}

// Memory is what a [State] knows of a source.
type Memory struct {
	Known []*object.Object // the objects that the handlers were given
	At    string           // the resourceVersion of which Known is the state; empty: nothing is known
	Scope string           // Source.Scope of then
	// GoesOn says that this process has resumed the source before: what was handed on since then still counts.
	GoesOn bool
}

// Share is a part of a remembered source: its objects in the namespaces for which In is true.
type Share struct {
	Source string
	In     func(namespace string) bool
}

// Record takes down what an informer is about to hand on, and keeps the bytes of its objects. Handlers may ask for the bytes of each
// state that they were given: the first list is stored as a whole, and each change is noted before any handler is given it.
type Record interface {
	Bodies
	// FirstList is given the first list before any of it is handed on, unless the informer resumes. It returns false if the process ends
	// before the list is stored; then nothing is handed on.
	FirstList(objects []*object.Object, resourceVersion string) bool
	// Entering is given what the list of another scope has that was not known (see Config.Relist), before any difference is handed on. It
	// returns false if the process ends before that is stored; then nothing is handed on.
	Entering(objects []*object.Object) bool
	// Added, Updated and Deleted are given each later change.
	Added(o *object.Object)
	Updated(o *object.Object)
	Deleted(last *object.Object)
	// Gap comes before the changes of a re-list: see Observer.OnGap.
	Gap(from, to string)
	// Reached follows each change, each list as a whole, and each bookmark: everything up to resourceVersion was handed on. It may wait:
	// the informer reads nothing meanwhile.
	Reached(resourceVersion string)
}

// noRecord is the record of an informer whose objects stay in memory and whose changes nobody notes.
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

// FirstLister is implemented by handlers that want the first list, or else what is known at the start, as a whole, before any handler is
// given a part of it.
type FirstLister interface {
	OnFirstList(objects []*object.Object)
}
