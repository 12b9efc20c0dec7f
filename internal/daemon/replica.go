package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/election"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/reload"
	"github.com/deltabridge/deltabridge/internal/replica"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// patience is how long a replica lets better prepared replicas become the leader first, in retry periods. client-go
// waits up to 2.2 of them between two attempts.
const patience = 3

// replicate runs this process as a replica until ctx ends: it follows the state log, and runs an engine whenever it
// holds the Lease.
func (b *bridge) replicate(ctx context.Context) (err error) {
	lease, err := assemble.Lease(b.cfg)
	if err != nil {
		return err
	}
	c, err := b.openCopy(b.server.name, lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	b.reload.Follow(c)
	candidate, err := b.candidate(b.server.name, lease, c.Eligible)
	if err != nil {
		return err
	}
	client, err := informer.NewClient(b.kube)
	if err != nil {
		return err
	}
	if b.auditing, err = b.openAuditing(lease); err != nil {
		return err
	}
	b.server.auditing.Store(b.auditing)
	b.server.serve(b.standby(c, candidate))
	return b.during(ctx, func(ctx context.Context) error {
		return c.Run(ctx, b.terms(c, candidate, client))
	})
}

// terms returns what a replica does when it leads.
func (b *bridge) terms(c *replica.Copy, candidate *election.Candidate, client rest.Interface) replica.Terms {
	var taking *control.Recorder // of the current term
	return replica.Terms{
		Elect: func(ctx context.Context, lead func(replica.Term)) error {
			return candidate.Lead(ctx, func(t *election.Term) {
				before := t.Before()
				taking = control.NewRecorder(before.Since, string(before.Reason))
				taking.End(control.StepLease)
				// A standby loads changed configurations.
				if err := b.setPrivacy(c.Store(), b.reload.InUse().Config); err != nil {
					b.log.Warn("cannot prepare the checkpoint, not leading", "err", err)
					return
				}
				lead(t)
				b.server.serve(b.standby(c, candidate))
			})
		},
		Cluster: func(ctx context.Context) (string, error) { return tracker.ReadClusterUID(ctx, client) },
		Engine: func(ctx context.Context, store *checkpoint.Store, rights replica.Rights) error {
			if err := reload.OrphanedEvents(store, b.reload.InUse().Config); err != nil {
				return &RefusedError{err}
			}
			taking.End(control.StepLog)
			b.auditing.lead(true)
			defer b.auditing.lead(false)
			b.server.takeOver.Store(taking)
			err := b.runEngines(ctx, task{role: control.Leader, copy: c}, taking, store, func(o *engine.Options) {
				o.Sinks = slices.DeleteFunc(o.Sinks, func(s engine.Sink) bool { return s.Audit }) // see auditing
				o.Leads, o.Linger, o.NotReady = rights.Leads, rights.Linger, c.NotReady
				o.DetachedSince = c.DetachedSince
			})
			if errors.Is(err, tracker.ErrOtherCluster) {
				b.log.Warn("starting again with a new checkpoint", "because", err)
				err = nil
			}
			return err
		},
	}
}

// openCopy opens the checkpoint as a copy of the state log. name identifies this process.
func (b *bridge) openCopy(name string, lease config.Lease) (*replica.Copy, error) {
	state, err := assemble.Checkpoint(b.cfg, b.log)
	if err != nil {
		return nil, err
	}
	log, err := assemble.Log(b.cfg.State.Log, b.log)
	if err != nil {
		return nil, err
	}
	c, err := replica.Open(replica.Options{
		Checkpoint: state, Log: log, Patience: patience * b.cfg.Election.RetryPeriod(),
		Claim: statelog.Claim{
			Lease: lease.Namespace + "/" + lease.Name, Holder: name, Started: time.Now(),
			Configuration: b.reload.InUse().Hash,
		},
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return c, nil
}

func (b *bridge) candidate(name string, lease config.Lease, eligible func() bool) (*election.Candidate, error) {
	e := b.cfg.Election
	kube := rest.CopyConfig(b.kube)
	kube.UserAgent = "deltabridge/" + b.Version
	return election.New(election.Config{
		Lease: election.Lease{Namespace: lease.Namespace, Name: lease.Name}, LeaseDuration: e.LeaseDuration,
		RenewDeadline: e.RenewDeadline(), RetryPeriod: e.RetryPeriod(), Eligible: eligible,
	}, kube, name, b.log)
}

// processName returns a name for this process: the name of the host, which is that of the Pod, and a random suffix.
func processName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of the host: %w", err)
	}
	return host + "-" + strings.ToLower(rand.Text()[:5]), nil
}

// standby returns the task of a replica that is not the leader.
func (b *bridge) standby(c *replica.Copy, candidate *election.Candidate) task {
	readiness := func() (reasons, notes []string) {
		leader, _ := candidate.Holder()
		notes = []string{fmt.Sprintf("standby, the leader is %q", leader)}
		switch behind := c.Behind(); {
		case c.Ready():
		case behind < 0:
			reasons = []string{"this replica has no complete copy of state.log, or cannot read it"}
		case behind == 0:
			reasons = []string{"this replica becomes the leader"}
		default:
			reasons = []string{fmt.Sprintf("this replica is %d commits behind state.log", behind)}
		}
		return reasons, notes
	}
	t := task{role: control.Standby, copy: c, readiness: b.auditing.readiness(readiness)}
	t.pages = b.newMetrics(t).Handler(t.readiness)
	return t
}
