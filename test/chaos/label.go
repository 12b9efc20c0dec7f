package chaos

import (
	"context"
	"encoding/json"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/test/poll"
)

// selectionGrace is how long after its start the bridge may leave its filters as they are.
const selectionGrace = 6 * time.Second

// label changes the label of a namespace. For the judge, this is the end of a process and the start of another one.
// Nothing is written until the bridge has seen it, or is ended.
func (r *run) label(ctx context.Context, s Step) error {
	r.writers.Wait()
	if n := len(r.timeline.Processes); n > 0 && r.bridge != nil {
		pause(ctx, time.Until(r.timeline.Processes[n-1].Up.Add(selectionGrace)))
	}
	at := time.Now()
	rev, err := r.w.cluster.Revision(ctx)
	if err != nil {
		return err
	}
	if err := r.w.label(ctx, r.names[s.Namespace], s.Zone); err != nil {
		return err
	}
	pause(ctx, s.Pause)
	r.config = r.config.Clone()
	r.config.Zones[s.Namespace] = s.Zone
	r.used = r.used.Clone()
	r.used.Zones = r.config.Zones
	if r.bridge == nil || r.bridge.Ended() {
		return nil
	}
	now, err := r.w.cluster.Revision(ctx)
	if err != nil {
		return err
	}
	p := &r.timeline.Processes[len(r.timeline.Processes)-1]
	p.ReadyRev, p.How, p.Asked, p.End, p.EndRev = r.bridge.ready.Load(), string(Term), at, at, now
	if p.ReadyRev > 0 {
		r.bridge.ready.Store(now)
	}
	r.timeline.Processes = append(r.timeline.Processes,
		Process{Config: r.used, Start: at, Up: p.Up, StartRev: rev, ReadyRev: r.bridge.ready.Load(), EndRev: math.MaxInt64})
	return nil
}

// label sets the label of a namespace, also while the API server is away.
func (w *world) label(ctx context.Context, namespace, zone string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{zoneLabel: zone}}})
	if err != nil {
		return err
	}
	return poll.Until(ctx, pollInterval, 2*time.Minute, func() error {
		_, err := w.api.Resource(resourceOf("namespaces")).
			Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}
