package tracker

import (
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Store stores the data that a restart requires. [checkpoint.Store] implements it with a file. The documentation of
// package checkpoint describes the methods and their guarantees. An implementation that stores the data in another
// place must provide at least this guarantee: when Commit returns, the rows, watermarks, positions and filters of the
// commit are durable together.
//
// Reads must be possible at any time, even during a write.
type Store interface {
	// BeginCluster sets the cluster that the objects belong to. It is called before the first Commit, or, with another
	// cluster, as the last method of a tracker. Data of another cluster is ignored from then on.
	BeginCluster(uid string) error
	// ClusterUID returns the uid of the last BeginCluster call, which may be a call of a previous process. It does not
	// block.
	ClusterUID() string
	Commit(updates []ledger.Update, filters map[string]string, positions map[string]sinks.Positions) error
	Forget(source string) error
	SetWatch(watch string) (change, epoch string, err error)
	SetDestination(sink, name string) error
	AddPositions(positions map[string]sinks.Positions) error

	States() ([]ledger.State, error)
	Load(source string) (ledger.State, []*object.Object, error)
	Fetch(source, key string, id object.Identity) ([]byte, error)
	Destination(sink string) string
	SinkConfig(sink string) string
	Positions(sink string) sinks.Positions
	Installation() string
	Stats() checkpoint.Stats
}

var _ Store = (*checkpoint.Store)(nil)
