package fleet

import (
	"context"
	"math"
	"time"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// lookAgain makes Run discover what the cluster serves.
func (s *Fleet) lookAgain() {
	select {
	case s.changes <- struct{}{}:
	default: // a request is waiting
	}
}

// watchDefinitions returns an informer that calls lookAgain when CustomResourceDefinitions are added, updated or
// deleted, or nil if no scope can match their resources. If RBAC forbids it, the fleet polls.
func (s *Fleet) watchDefinitions() *informer.Informer {
	if !s.matchesDefinitions() {
		return nil
	}
	listWatch := informer.ListWatch(s.config.Client, crdResource, "", nil)
	listWatch.MetadataOnly = true // a CustomResourceDefinition can be a megabyte of schema
	definitions := informer.New(
		informer.Config{Resource: crdResource, ListWatch: listWatch, Connector: s.config.Connector},
	)
	definitions.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.lookAgain() }, // the first ones too: a look may have been too early for them
		UpdateFunc: func(_, _ any) { s.lookAgain() },
		DeleteFunc: func(any) { s.lookAgain() },
	})
	return definitions
}

// How often the fleet discovers what the cluster serves.
const (
	pollWatched   = 5 * time.Minute  // while definitions are watched; this finds aggregated APIs
	pollUnwatched = 30 * time.Second // while definitions may not be watched
	pollFailing   = 2 * time.Second  // first retry after a failure, doubled up to pollUnwatched
)

// afterChange is the pause before the first look after the change of a definition. Further looks follow after 1, 3 and
// 9 seconds: the API server takes a moment to serve a new resource, and to stop serving one that was removed.
const afterChange = 200 * time.Millisecond

// pace decides when to look next. The zero value is ready for use.
type pace struct {
	pending wait.Backoff // the further looks after a change
	failing wait.Backoff // of the looks after a failure; Duration is 0 after a success
}

// wait pauses until the next look, and returns false if ctx ended. complete says that the last look left nothing open,
// watched that changes are seen. Changes that come close together lead to one look. Changes that come while looks
// follow an earlier one lead to at most one look per second, however many definitions are edited.
func (p *pace) wait(ctx context.Context, changes <-chan struct{}, complete, watched bool) bool {
	pause := afterChange
	if p.pending.Steps > 0 {
		pause = time.Second
	}
	timer := time.NewTimer(p.next(complete, watched))
	defer timer.Stop()
	for soon := false; ; {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
			p.pending = wait.Backoff{Duration: time.Second, Factor: 3, Steps: 3}
			if !soon {
				soon = true
				timer.Reset(pause)
			}
		case <-timer.C:
			return true
		}
	}
}

// next returns the pause before the next look; see wait.
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
