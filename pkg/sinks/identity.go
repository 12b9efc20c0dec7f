package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Owner is a cluster that writes to a destination: its configured name, and the uid of its namespace kube-system.
type Owner struct{ Cluster, UID string }

// Registration says to which cluster a name belongs at a destination.
type Registration struct {
	UID   string    // of the cluster; empty if the name belongs to none
	Since time.Time // when it was registered
}

// Identified is implemented by sinks whose destination has an identity, and can record which clusters write to it. The
// goroutine that calls Connect and Send calls it.
type Identified interface {
	// Destination returns the identity of what the sink writes to. It does not depend on the address. It is what the last
	// Connect, Send or Check found; empty before.
	Destination() string
	// Registered returns the registration of a cluster's name, and creates nothing. An error that wraps ErrNoRegister
	// means that it can't be read.
	Registered(ctx context.Context, cluster string) (Registration, error)
	// Register records that owner's name belongs to owner, and no longer to the uid replaced (empty: to none). If the name
	// belongs to another cluster, nothing changes, and the error is nil: call Registered. An error that wraps
	// ErrNoRegister means that nothing can be recorded.
	Register(ctx context.Context, owner Owner, replaced string) error
}

// ErrNoRegister says that the destination has no place for the names of clusters, or the client may not use it.
var ErrNoRegister = errors.New("the destination cannot register cluster names")

// ErrNameTaken is wrapped by the error of Claim if the name belongs to another cluster.
var ErrNameTaken = errors.New("the cluster's name is taken")

// Claim registers a cluster's name at the destination if it belongs to none. If it belongs to another cluster, the
// error is a *ConnectError that wraps ErrNameTaken and mentions the name of the sink.
func Claim(ctx context.Context, d Identified, sink string, owner Owner) error {
	found, err := d.Registered(ctx, owner.Cluster)
	if err == nil && found.UID == "" {
		if err = d.Register(ctx, owner, ""); err == nil {
			found, err = d.Registered(ctx, owner.Cluster) // another cluster may have been first
		}
	}
	if err != nil || found.UID == owner.UID {
		return err
	}
	return NameTaken(d, sink, owner, found)
}

// NameTaken returns the error of a cluster whose name belongs to another one. It wraps ErrNameTaken.
func NameTaken(d Identified, sink string, owner Owner, found Registration) *ConnectError {
	return &ConnectError{
		Step: StepName, Rejected: true,
		Err: fmt.Errorf("%w: %s knows %q as the cluster with the uid %s, since %s, and this one has the uid %s",
			ErrNameTaken, d.Destination(), owner.Cluster, found.UID, found.Since.UTC().Format(time.RFC3339), owner.UID),
		Remedy: "give each cluster its own name (cluster), or, if this cluster was rebuilt, hand the name over: " +
			"bridge claim --config FILE --sink " + sink,
	}
}

// Guard is a Sink that sends nothing under the name of another cluster, and reports which destination it writes to. A
// sink that is not Identified is passed through. Set the fields before the first Connect.
type Guard struct {
	Sink
	Name string // of the sink
	// Owner returns the cluster that writes. If its UID is not known, which it may be before the first message, nothing is
	// checked.
	Owner func() Owner
	// OnDestination is called when the destination is known, and when it becomes another one, by the goroutine of
	// Connect and Send. Nil is allowed.
	OnDestination func(name string)
	Logger        *slog.Logger

	claimed     Owner        // at destination
	destination string       // as it was reported
	warned      bool         // that nothing is checked
	conflict    atomic.Value // string; see NameConflict
}

// Connect implements Sink.
func (g *Guard) Connect(ctx context.Context) error {
	if err := g.Sink.Connect(ctx); err != nil {
		return err
	}
	g.claimed = Owner{}
	return g.identify(ctx)
}

// Send implements Sink. Nothing is sent as long as the name belongs to another cluster.
func (g *Guard) Send(ctx context.Context, batch []*event.Message, results []error) {
	if err := g.identify(ctx); err != nil {
		for i := range results {
			results[i] = err
		}
		return
	}
	g.Sink.Send(ctx, batch, results)
	if d, ok := g.Sink.(Identified); ok {
		g.report(d)
	}
}

// identify reports the destination, and claims the name if that was not done there.
func (g *Guard) identify(ctx context.Context) error {
	d, ok := g.Sink.(Identified)
	if !ok {
		return nil
	}
	g.report(d)
	owner := g.Owner()
	if owner.UID == "" || owner == g.claimed {
		return nil
	}
	err := Claim(ctx, d, g.Name, owner)
	if errors.Is(err, ErrNoRegister) {
		if !g.warned {
			g.warned = true
			g.Logger.Warn(
				"whether another cluster writes under this cluster's name is not checked",
				"cluster",
				owner.Cluster,
				"err",
				err,
			)
		}
		err = nil
	}
	if e, ok := errors.AsType[*UnavailableError](err); ok { // nothing is sent to any part while names can't be read
		err = e.Err
	}
	if err == nil {
		g.claimed = owner
	}
	if errors.Is(err, ErrNameTaken) {
		g.conflict.Store(err.Error())
	} else {
		g.conflict.Store("")
	}
	return err
}

// NameConflict returns why nothing is sent because the cluster's name belongs to another one; empty if it does not. It
// may be called at any time.
func (g *Guard) NameConflict() string {
	text, _ := g.conflict.Load().(string)
	return text
}

// Part implements [Router], if the sink does.
func (g *Guard) Part(m *event.Message) string {
	if router, ok := g.Sink.(Router); ok {
		return router.Part(m)
	}
	return ""
}

// report calls OnDestination if the destination is another one. A stream can be created again while the sink is
// connected.
func (g *Guard) report(d Identified) {
	name := d.Destination()
	if name == "" || name == g.destination {
		return
	}
	g.destination, g.claimed = name, Owner{}
	if g.OnDestination != nil {
		g.OnDestination(name)
	}
}
