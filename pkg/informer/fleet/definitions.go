package fleet

import (
	"context"
	"math"
	"time"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// lookAgain makes Run discover again which resources the cluster serves.
func (s *Fleet) lookAgain() {
	select {
	case s.changes <- struct{}{}:
	default: // a request is already waiting
	}
}

// watchDefinitions returns an informer that calls lookAgain when a CustomResourceDefinition is added, updated or
// deleted. It returns nil if no scope can match custom resources. If RBAC forbids watching definitions, the fleet
// polls.
func (s *Fleet) watchDefinitions() *informer.Informer {
	if !s.matchesDefinitions() {
		return nil
	}
	source := informer.Source{Resource: crdResource}
	listWatch := informer.ListWatch(s.config.Client, source)
	listWatch.MetadataOnly = true // the schema in a CustomResourceDefinition can be 1 MB in size
	definitions := informer.New(informer.Config{Source: source, ListWatch: listWatch, Connector: s.config.Connector})
	definitions.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.lookAgain() }, // the initial list may contain definitions that the last discovery missed
		UpdateFunc: func(_, _ any) { s.lookAgain() },
		DeleteFunc: func(any) { s.lookAgain() },
	})
	return definitions
}

// These constants define how often the fleet discovers which resources the cluster serves.
const (
	pollWatched   = 5 * time.Minute  // if definitions are watched; polling is still required for aggregated APIs
	pollUnwatched = 30 * time.Second // if RBAC forbids watching definitions
	pollFailing   = 2 * time.Second  // first retry after a failure; the interval doubles up to pollUnwatched
)

// afterChange is the time between a change to a definition and the next discovery. More discoveries follow after 1, 3
// and 9 seconds, because the API server needs some time to serve a new resource, and to stop serving a removed one.
const afterChange = 200 * time.Millisecond

// pace decides when to run the next discovery. The zero value is ready to use.
type pace struct {
	pending wait.Backoff // back-off between the later discoveries after a change
	failing wait.Backoff // back-off after failed discoveries; Duration is 0 after a success
}

// wait blocks until the next discovery is due. It returns false if ctx ends first. complete reports whether the last
// discovery was complete, and watched reports whether definitions are being watched. If several changes occur close
// together, they cause one discovery. While the later discoveries after a change are pending, further changes cause at
// most one discovery per second, no matter how many definitions are edited.
func (p *pace) wait(ctx context.Context, changes <-chan struct{}, complete, watched bool) bool {
	pause := afterChange
	if p.pending.Steps > 0 {
		pause = time.Second
	}
	due := time.After(p.next(complete, watched))
	for soon := false; ; {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
			p.pending = wait.Backoff{Duration: time.Second, Factor: 3, Steps: 3}
			if !soon {
				soon = true
				due = time.After(pause)
			}
		case <-due:
			return true
		}
	}
}

// next returns the time until the next discovery; see wait.
func (p *pace) next(complete, watched bool) time.Duration {
	if complete || p.failing.Duration == 0 {
		p.failing = wait.Backoff{Duration: pollFailing, Factor: 2, Cap: pollUnwatched, Steps: math.MaxInt}
	}
	switch {
	case p.pending.Steps > 0:
		return p.pending.Step()
	case !complete:
		return p.failing.Step()
	case watched:
		return pollWatched
	default:
		return pollUnwatched
	}
}
