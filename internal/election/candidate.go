package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Lease names the Lease that the leader holds. It is created if it does not exist. Its namespace must exist.
type Lease struct{ Namespace, Name string }

// Config describes an election. All candidates should have the same Lease and durations.
type Config struct {
	Lease Lease
	// LeaseDuration is the time after which a Lease that is not renewed expires. It is a whole number of seconds, because
	// a Lease cannot contain anything else.
	LeaseDuration time.Duration
	// RenewDeadline is the time after which the leader gives up if it cannot renew the Lease. It must be shorter than
	// LeaseDuration. What remains is the time to stop the work before another process can take the Lease.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals by the leader. The time between two attempts of a waiting candidate is
	// random, between RetryPeriod and 2.2 times RetryPeriod. RenewDeadline must be longer than 1.2 times RetryPeriod.
	RetryPeriod time.Duration
	// Eligible is called before each attempt to take the Lease, unless it is nil. If it returns false, there is no
	// attempt. It is not called while the process leads. It must not block.
	Eligible func() bool
}

// Candidate takes part in an election.
type Candidate struct {
	config   Config
	identity string
	log      *slog.Logger
	leases   v1.LeasesGetter
	http     *http.Client

	mu       sync.Mutex
	observed resourcelock.LeaderElectionRecord // the last one that was read or written
	changed  time.Time                         // when observed became different; zero if nothing was read yet
	held     bool                              // a process held the Lease since New
	reserved time.Time                         // until then, the holder of a deleted Lease may not know this
	results  map[string]result                 // of the last request with each verb
}

// result is the kind of result that a request had.
type result int

const (
	succeeds result = iota
	fails
	isForbidden
)

// New returns a candidate for an election on the API server of kube. It sends no request, and does not change kube. The
// identity must be different for each process and after each restart, for example the name of the Pod and a random
// suffix. New returns an error if the configuration is invalid.
func New(config Config, kube *rest.Config, identity string, log *slog.Logger) (*Candidate, error) {
	if config.LeaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("leader election: LeaseDuration %s: must be a whole number of seconds", config.LeaseDuration)
	}
	c := &Candidate{
		config: config, identity: identity, results: map[string]result{},
		log: log.With("lease", config.Lease.Namespace+"/"+config.Lease.Name),
	}
	if _, err := c.newElector(c.newLock(nil)); err != nil { // checks the durations and the identity
		return nil, err
	}
	kube = rest.CopyConfig(kube)
	// Over HTTP/1.1, a request that was not answered in time closes its connection, and the next request opens another
	// one. Over HTTP/2, all requests would use the broken connection until a ping fails, which takes up to 45 seconds.
	kube.NextProtos = []string{"http/1.1"}
	kube.QPS, kube.RateLimiter = -1, nil
	kube.Timeout = 0 // it would end watches; a lock limits its requests itself
	if kube.Dial == nil {
		kube.Dial = reach.Dial
	}
	var err error
	if c.http, err = rest.HTTPClientFor(kube); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	if c.leases, err = v1.NewForConfigAndClient(kube, c.http); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return c, nil
}

func (c *Candidate) newElector(l resourcelock.Interface) (*leaderelection.LeaderElector, error) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          l,
		LeaseDuration: c.config.LeaseDuration, RenewDeadline: c.config.RenewDeadline, RetryPeriod: c.config.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, // the lock begins the term with the first renewal
			OnStoppedLeading: func() {},
		},
		// ReleaseOnCancel would release the Lease as soon as the elector gives up, while the work of the term still runs. It
		// would also release the Lease of another process, because the elector does not compare the holder that it has read.
		ReleaseOnCancel: false,
	})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return elector, nil
}

// Lead calls lead whenever this process has become the leader, until ctx ends. While lead runs, the Lease is renewed,
// also after ctx has ended. When lead returns, the Lease is released if it is still held. lead must return some time
// after the term's context has ended. If it returns earlier, every other candidate that is eligible has an attempt
// before this one tries again.
//
// Lead returns nil when ctx has ended, lead has returned, and the Lease is released, or could not be released within
// half of RenewDeadline. It must not be called again while it runs.
func (c *Candidate) Lead(ctx context.Context, lead func(*Term)) error {
	defer c.closeIdleConnections()
	var watching sync.WaitGroup
	defer watching.Wait()
	watchCtx, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	defer stop()
	free := make(chan struct{}, 1)
	watching.Go(func() { c.watch(watchCtx, free) })
	for ctx.Err() == nil {
		resigned, err := c.campaign(ctx, free, lead)
		if err != nil {
			return err
		}
		if resigned {
			pause.For(ctx, 3*c.config.RetryPeriod) // others try after at most 2.2 times RetryPeriod
		}
	}
	return nil
}

// campaign runs an elector until the term that it wins is over, ctx ends, or free receives. It returns true if lead has
// returned although the Lease was not lost. The first attempt of an elector is immediate, but an elector has to observe
// the Lease for a whole LeaseDuration before it considers the Lease expired. Therefore it is not replaced without a
// reason.
func (c *Candidate) campaign(ctx context.Context, free <-chan struct{}, lead func(*Term)) (resigned bool, _ error) {
	term := newTerm(ctx, c.config, c.log)
	l := c.newLock(term)
	elector, err := c.newElector(l)
	if err != nil {
		return false, err
	}
	select {
	case <-free: // the first attempt comes now
	default:
	}
	// Renewals must not end with ctx. The lock logs what the elector would log.
	electing, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	var running sync.WaitGroup
	running.Go(func() { elector.Run(electing) })
	select {
	case <-term.begun:
		c.log.Info("leading", "identity", c.identity)
		lead(term)
		resigned = term.lostBy() == nil
	case <-free:
	case <-ctx.Done():
	}
	stop()
	running.Wait()
	term.close()
	if term.hasBegun() || ctx.Err() != nil {
		l.release(context.WithoutCancel(ctx))
	}
	return resigned, nil
}

// Holder returns the identity of the process that holds the Lease, and since when, by the clock of that process. The
// identity is empty if nobody holds the Lease or nothing is known yet. Holder returns what this process has read or
// written last, so the Lease may have expired since. After a term was lost, nothing is read until the caller's function
// has returned.
func (c *Candidate) Holder() (identity string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.observed.HolderIdentity, c.observed.AcquireTime.Time
}

// observe stores what was read or written for Holder.
func (c *Candidate) observe(record resourcelock.LeaderElectionRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	holder := record.HolderIdentity
	if holder != c.observed.HolderIdentity && holder != "" && holder != c.identity {
		c.log.Info("another process holds the lease", "holder", holder, "since", record.AcquireTime.Time)
	}
	if c.changed.IsZero() || holder != c.observed.HolderIdentity || !record.RenewTime.Equal(&c.observed.RenewTime) {
		c.changed = time.Now()
	}
	c.observed, c.held = record, c.held || holder != ""
}

// vacancy returns the Vacancy that ends if the Lease is taken now.
func (c *Candidate) vacancy() Vacancy {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := Vacancy{Reason: Released, Since: c.changed}
	switch {
	case c.observed.HolderIdentity != "":
		v.Reason = Expired
	case !c.held:
		v.Reason = Start
	}
	return v
}

// reserve must be called if the Lease does not exist, before observe. If another process held it, this process waits
// for LeaseDuration: the other one cannot have renewed the Lease since, but may not know that it was deleted.
func (c *Candidate) reserve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if holder := c.observed.HolderIdentity; holder != "" && holder != c.identity {
		c.reserved = time.Now().Add(c.config.LeaseDuration)
		c.log.Warn("lease was deleted, waiting until it would have expired", "holder", holder)
	}
}

func (c *Candidate) isReserved() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.reserved)
}

// note logs the result of a request if it is of another kind than that of the last request with the same verb. So a
// missing right is logged once.
func (c *Candidate) note(verb string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := succeeds
	switch {
	case apierrors.IsForbidden(err):
		now = isForbidden
	case err != nil:
		now = fails
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.results[verb]
	if c.results[verb] = now; now == before {
		return
	}
	switch now {
	case succeeds:
		c.log.Info("lease requests succeed again", "verb", verb)
	case isForbidden:
		c.log.Error("right to use the lease is missing, retrying", "verb", verb, "err", err)
	case fails:
		c.log.Warn("lease request failed, retrying", "verb", verb, "err", err)
	}
}

func (c *Candidate) closeIdleConnections() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }
