package informer

import "github.com/deltabridge/deltabridge/pkg/object"

// State stores what a restart requires about the sources of a fleet. For each change, the fleet and its informers call
// State and its Records before they call any handler.
type State interface {
	// Remembered returns the sources that the previous process watched and this process has not resumed. Other sources may
	// take over their objects. Objects that no scope selects any more are reported as left. Objects whose definition was
	// deleted are reported as deleted.
	Remembered() []Source
	// TakeOver moves shares of remembered sources to another source, which then knows their objects. into.Scope is the
	// scope of all objects that the source knows afterwards. TakeOver is called before Resume of that source, and returns
	// after the change is stored.
	TakeOver(into Source, shares []Share)
	// Resume returns the stored Memory of a source, or an empty Memory if this process has resumed the source before. It
	// is called before handlers are added to the source's informer.
	Resume(Source) Memory
	// Record returns the Record of a source that was resumed.
	Record(Source) Record
	// Forget is called for each source that is no longer watched, or whose definition was deleted, after the last change
	// was delivered. Each call is made from its own goroutine.
	Forget(source string)
}

// Memory contains what a [State] has stored about a source.
type Memory struct {
	Known []*object.Object // objects that the handlers have received
	At    string           // resourceVersion of the state in Known; empty if nothing is known
	Scope string           // Source.Scope at that time
}

// Share is a part of a remembered source: the objects in the namespaces for which In is true.
type Share struct {
	Source string
	In     func(namespace string) bool
}

// Record stores the changes that an informer is about to deliver, and the bytes of its objects. The first list is
// stored as a whole, and each change is recorded before any handler is called. So a handler can fetch the bytes of
// every state that it has received.
//
// The index then contains only identities. The bytes are fetched for the last known state of an object whose deletion
// was missed, and for filters and payloads that use the old state.
type Record interface {
	object.Keeper
	// Stage begins to store the objects of a first list while the list is being read. It drops all objects that were
	// staged before, because a list that breaks off is read again from the start. If Stage returns nil, the list stays in
	// memory.
	Stage() Stage
	// FirstList stores the first list before any object is delivered. It is not called if the informer resumes. It returns
	// false if the process ends before the list is stored. In this case, nothing is delivered.
	FirstList(objects []*object.Object, resourceVersion string) bool
	// Entering stores those objects of a list for a different scope that were not known before (see Config.Relist). It is
	// called before any difference is delivered. It returns false if the process ends before the objects are stored. In
	// this case, nothing is delivered.
	Entering(objects []*object.Object) bool
	// Added, Updated and Deleted record every later change.
	Added(o *object.Object)
	Updated(o *object.Object)
	Deleted(last *object.Object)
	// Gap is called before the changes of a re-list are delivered; see Observer.OnGap.
	Gap(from, to string)
	// Reached is called after each change, each list and each bookmark, when all changes up to resourceVersion have been
	// delivered. It may wait. The informer reads no events while it waits.
	Reached(resourceVersion string)
}

// noRecord is the Record of an informer whose objects stay in memory. It stores nothing.
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

// FirstLister is an optional interface of handlers. OnFirstList is called with the whole first list, or with all
// objects that are known when the informer starts, before any handler receives one of these objects.
type FirstLister interface {
	OnFirstList(objects []*object.Object)
}
