package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var (
	errNotEligible = errors.New("this process is not eligible")
	errDeleted     = errors.New("the lease was deleted, but its holder may not know this yet")
)

// lock is the Lease as one elector sees it. It begins the elector's term, and ends it if the Lease is lost. It does not
// let the elector continue a lost term: the elector would take the Lease again, although another process may have led
// in the meantime.
//
// It is not safe for concurrent use, because the elector calls one method at a time.
type lock struct {
	*resourcelock.LeaseLock

	candidate *Candidate
	term      *Term
	mayHold   bool // this process holds the Lease, as far as is known
}

func (c *Candidate) newLock(term *Term) *lock {
	return &lock{candidate: c, term: term, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: c.config.Lease.Namespace, Name: c.config.Lease.Name},
		Client:     c.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.identity},
	}}
}

// Get implements resourcelock.Interface. The elector considers the Lease expired if the bytes that Get returns do not
// change for LeaseDuration. LeaseLock writes times in whole seconds, so the elector would miss renewals if there are
// several in a second, and take the Lease up to a second too early.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.term.lostBy(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := l.limit(ctx)
	defer cancel()
	record, raw, err := l.LeaseLock.Get(ctx)
	var seen resourcelock.LeaderElectionRecord
	switch {
	case err == nil:
		seen = *record
		raw = record.RenewTime.AppendFormat(raw, time.RFC3339Nano)
	case apierrors.IsNotFound(err):
		l.candidate.reserve()
	default:
		l.failed("get", err)
		return nil, nil, err
	}
	l.candidate.note("get", nil)
	l.candidate.observe(seen)
	if l.mayHold = seen.HolderIdentity == l.Identity(); !l.mayHold {
		l.term.lose(lossReason(seen.HolderIdentity, err))
	}
	return record, raw, err
}

// lossReason returns the reason why this process does not hold the Lease, from the result of a Get.
func lossReason(holder string, err error) error {
	switch {
	case err != nil:
		return errors.New("the lease was deleted")
	case holder == "":
		return errors.New("another process has held and released the lease")
	}
	return fmt.Errorf("another process holds the lease: %s", holder)
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.candidate.isReserved() {
		return errDeleted
	}
	return l.hold(ctx, "create", record, l.LeaseLock.Create)
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(ctx, "update", record, l.LeaseLock.Update)
}

// hold sends a request that takes or renews the Lease.
func (l *lock) hold(ctx context.Context, verb string, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if err := l.term.lostBy(); err != nil {
		return err
	}
	eligible := l.candidate.config.Eligible
	if eligible != nil && !l.term.hasBegun() && !eligible() {
		return errNotEligible
	}
	ctx, cancel := l.limit(ctx)
	defer cancel()
	l.mayHold = true // even if the request fails, because it may have been executed
	if !l.term.hasBegun() {
		l.term.before = l.candidate.vacancy()
	}
	start := time.Now()
	err := send(ctx, record)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // another process was faster, or has deleted it
		l.candidate.note(verb, nil)
		return err
	}
	if err != nil {
		l.failed(verb, err)
		return err
	}
	l.candidate.note(verb, nil)
	l.candidate.observe(record)
	l.term.renew(start)
	return nil
}

// failed records a failed request. If there was no answer in time, other idle connections may also be broken, and the
// next request must not use them. The request's own connection is closed already.
func (l *lock) failed(verb string, err error) {
	l.candidate.note(verb, err)
	if errors.Is(err, context.DeadlineExceeded) {
		l.candidate.closeIdleConnections()
	}
}

// release gives the Lease up if this process still holds it. The elector must have ended.
func (l *lock) release(ctx context.Context) {
	if !l.mayHold {
		return
	}
	ctx, cancel := l.limit(ctx)
	defer cancel()
	released, err := l.tryRelease(ctx)
	for apierrors.IsConflict(err) { // with a renewal that was canceled, but executed nevertheless
		released, err = l.tryRelease(ctx)
	}
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		l.candidate.log.Warn("cannot release the lease, it expires", "err", err)
	case released:
		l.candidate.log.Info("lease released")
	}
}

func (l *lock) tryRelease(ctx context.Context) (released bool, _ error) {
	record, _, err := l.LeaseLock.Get(ctx)
	if err != nil || record.HolderIdentity != l.Identity() {
		return false, err
	}
	now := metav1.Now()
	free := resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, LeaderTransitions: record.LeaderTransitions, AcquireTime: now, RenewTime: now,
	}
	if err := l.LeaseLock.Update(ctx, free); err != nil {
		return false, err
	}
	l.candidate.observe(free)
	return true, nil
}

// limit returns a context for a request. If a request is lost, there is time for another one before RenewDeadline.
func (l *lock) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.candidate.config.RenewDeadline/2)
}
