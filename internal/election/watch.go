package election

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// watch watches the Lease until ctx ends. It sends to free when the Lease was released or deleted.
func (c *Candidate) watch(ctx context.Context, free chan<- struct{}) {
	backoff := wait.Backoff{Duration: time.Second, Cap: 30 * time.Second, Steps: 10, Factor: 2, Jitter: 1}
	delay := backoff.DelayWithReset(clock.RealClock{}, 2*time.Minute)
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) {
		c.watchOnce(ctx, free)
		return false, nil
	})
}

// watchOnce opens a watch and returns when it has ended. The first event is the current state of the Lease, if it
// exists, because there is no resourceVersion.
func (c *Candidate) watchOnce(ctx context.Context, free chan<- struct{}) {
	lease := c.config.Lease
	w, err := c.leases.Leases(lease.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, lease.Name).String(),
	})
	c.note("watch", err)
	if err != nil {
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			return // an error
		}
		holder := lease.Spec.HolderIdentity
		if event.Type == watch.Deleted || holder == nil || *holder == "" {
			select {
			case free <- struct{}{}:
			default:
			}
		}
	}
}
