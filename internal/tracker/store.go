package tracker

import (
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Store keeps what is settled, and the rows of each source, over restarts. What a method changes is durable when it
// returns nil; an error changes nothing, and the call may be repeated. It is safe for concurrent use. [FileStore]
// makes one of a checkpoint's file, whose documentation says what each method promises.
type Store interface {
	// BeginCluster, ClusterUID, SetWatch, Destination and SetDestination are about what there is once.
	BeginCluster(uid string) error
	ClusterUID() string
	SetWatch(watch string) (change string, err error)
	Destination(sink string) string
	SetDestination(sink, name string) error

	// States returns all sources. Load returns one and its rows without their bytes, which Fetch returns.
	States() ([]ledger.State, error)
	Load(source string) (ledger.State, []*object.Object, error)
	Fetch(source, key string, id object.Identity) ([]byte, error)
	Has(source string, in func(key string) bool) (bool, error)

	// Commit writes updates in one transaction, Stage a list of any length, TakeOver moves rows of other sources.
	Commit(updates []ledger.Update, filters map[string]string) error
	Stage(source ledger.Source) Stage
	TakeOver(into ledger.State, shares []ledger.Share) error
	Forget(source string) error

	Stats() checkpoint.Stats
	Close() error
}

// Stage takes the rows of a source's first list while it is read. Nothing of it counts before Finish.
type Stage interface {
	Put(o *object.Object) error
	Remove(o *object.Object) error
	Finish(u ledger.Update, filters map[string]string) error
}

// FileStore is the Store of a checkpoint's file.
type FileStore struct{ *checkpoint.Store }

var _ Store = FileStore{}

// Stage implements Store.
func (f FileStore) Stage(source ledger.Source) Stage { return f.Store.Stage(source) }
