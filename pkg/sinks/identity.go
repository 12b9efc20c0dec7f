package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Owner is a cluster that writes to a destination. It consists of the configured name and the UID of the cluster's
// kube-system namespace.
type Owner struct{ Cluster, UID string }

// Registration records which cluster a name belongs to at a destination.
type Registration struct {
	UID   string    // UID of the cluster; empty if the name is not registered
	Since time.Time // time of the registration
}

// Identified is implemented by sinks whose destination has an identity and can record which clusters write to it. Its
// methods must be called by the goroutine that calls Connect and Send.
type Identified interface {
	// Destination returns the identity of the destination, which does not depend on its address. It is the identity that
	// the last Connect, Send or Check found, and empty before the first of these calls.
	Destination() string
	// Registered returns the registration of a cluster's name. It creates nothing. If the registration can't be read, the
	// error wraps ErrNoRegister. If the sink is not connected, a Check must have succeeded before.
	Registered(ctx context.Context, cluster string) (Registration, error)
	// Register registers the name of owner for owner. replaced is the UID that the name belonged to until now, or empty if
	// the name was not registered. If the name belongs to another cluster, Register changes nothing and returns nil; call
	// Registered to see the owner. If nothing can be recorded, the error wraps ErrNoRegister.
	Register(ctx context.Context, owner Owner, replaced string) error
}

// ErrNoRegister means that the destination has no register of cluster names, or that the client has no permission to
// use the register.
var ErrNoRegister = errors.New("the destination cannot register cluster names")

// ErrNameTaken is wrapped by the error of Claim if the name belongs to another cluster.
var ErrNameTaken = errors.New("the cluster's name is taken")

// Claim registers a cluster's name at the destination if the name is not registered yet. If the name belongs to another
// cluster, the error is a *ConnectError that wraps ErrNameTaken and mentions the name of the sink.
func Claim(ctx context.Context, d Identified, sink string, owner Owner) error {
	found, err := d.Registered(ctx, owner.Cluster)
	if err == nil && found.UID == "" {
		if err = d.Register(ctx, owner, ""); err == nil {
			found, err = d.Registered(ctx, owner.Cluster) // another cluster may have registered the name first
		}
	}
	if err != nil || found.UID == owner.UID {
		return err
	}
	return NameTaken(d, sink, owner, found)
}

// NameTaken returns the error for a cluster whose name belongs to another cluster. The error wraps ErrNameTaken.
func NameTaken(d Identified, sink string, owner Owner, found Registration) *ConnectError {
	return &ConnectError{
		Step: StepName, Rejected: true,
		Err: fmt.Errorf("%w: in %s, %q is registered for the cluster with uid %s (since %s), but this cluster has uid %s",
			ErrNameTaken, d.Destination(), owner.Cluster, found.UID, found.Since.UTC().Format(time.RFC3339), owner.UID),
		Remedy: "give each cluster a unique name (cluster), or, if this cluster was rebuilt, transfer the name: " +
			"bridge claim --config FILE --sink " + sink,
	}
}

// Guard is a Sink that sends nothing while the cluster's name belongs to another cluster. It also reports the identity
// of the destination. If the wrapped Sink does not implement Identified, Guard only forwards calls. Set the fields
// before the first Connect.
type Guard struct {
	Sink
	Name string // name of the sink
	// Owner returns the cluster that this bridge writes for. While its UID is unknown, which is possible before the first
	// message, the name is not checked.
	Owner func() Owner
	// OnDestination is called when the identity of the destination becomes known or changes. It is called by the goroutine
	// of Connect and Send. It may be nil.
	OnDestination func(name string)
	Logger        *slog.Logger

	claimed     Owner  // the owner whose name was claimed at destination
	destination string // the identity that was reported last
	warned      bool   // a warning that names are not checked was logged
}

// Connect implements Sink.
func (g *Guard) Connect(ctx context.Context) error {
	if err := g.Sink.Connect(ctx); err != nil {
		return err
	}
	g.claimed = Owner{}
	return g.identify(ctx)
}

// Send implements Sink. It sends nothing while the name belongs to another cluster.
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

// identify reports the destination, and claims the name unless it is already claimed at this destination.
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
			g.Logger.Warn("cannot check whether another cluster has the same name", "cluster", owner.Cluster, "err", err)
		}
		err = nil
	}
	if e, ok := errors.AsType[*UnavailableError](err); ok { // nothing is sent to any part while the register can't be read
		err = e.Err
	}
	if err == nil {
		g.claimed = owner
	}
	return err
}

// report calls OnDestination if the identity of the destination has changed. It can change while the sink is connected,
// for example if a stream is deleted and created again.
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
