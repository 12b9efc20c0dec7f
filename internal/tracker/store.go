package tracker

import (
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Store holds what a restart has to know. [checkpoint.Store] keeps it in a file, and its methods say what a Store
// promises. The package documentation of checkpoint says which of that a store in another place must keep: above all,
// that rows, watermarks and filters of a Commit are durable together, when it returns.
//
// Reading must be possible at any time, also while something is written.
type Store interface {
	// BeginCluster says which cluster the objects are of, before the first Commit. What is stored of another one no
	// longer counts.
	BeginCluster(uid string) error
	// ClusterUID returns the argument of BeginCluster, or that of an earlier process. It waits for nothing.
	ClusterUID() string
	Commit(updates []ledger.Update, filters map[string]string) error
	TakeOver(into ledger.State, shares []ledger.Share) error
	Forget(source string) error
	SetWatch(watch string) (change string, err error)
	SetDestination(sink, name string) error

	States() ([]ledger.State, error)
	Load(source string) (ledger.State, []*object.Object, error)
	Has(source string, in func(key string) bool) (bool, error)
	Fetch(source, key string, id object.Identity) ([]byte, error)
	Destination(sink string) string
	Stats() checkpoint.Stats

	Close() error
}

var _ Store = (*checkpoint.Store)(nil)
