package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Owner is a cluster that writes to a destination, and the bridge that writes for it.
type Owner struct {
	Cluster string // configured name of the cluster
	UID     string // UID of the cluster's kube-system namespace
	State   State  // where the bridge keeps its state
	// New is set if the bridge does not know yet what the destination was sent. A new bridge must not replace one that
	// keeps its state in the other place: it would not have that state.
	New bool
}

// State is the place in which a bridge keeps its state.
type State string

// The places in which a bridge can keep its state.
const (
	StateFile State = "file" // only a directory, usually on a volume
	StateLog  State = "log"  // a log in a broker
)

// Registration records which cluster a name belongs to at a destination.
type Registration struct {
	UID   string    // UID of the cluster; empty if the name is not registered
	State State     // where the bridge that registered it keeps its state
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
	// Register registers the name of owner for owner, with its State. replaced is the UID that the name belonged to until
	// now, or empty if the name was not registered. If the name belongs to another cluster, Register changes nothing and
	// returns nil; call Registered to see the owner. If nothing can be recorded, the error wraps ErrNoRegister.
	Register(ctx context.Context, owner Owner, replaced string) error
}

// ErrNoRegister means that the destination has no register of cluster names, or that the client has no permission to
// use the register.
var ErrNoRegister = errors.New("the destination cannot register cluster names")

// ErrNameTaken is wrapped by the error of Claim if the name belongs to another cluster.
var ErrNameTaken = errors.New("the cluster's name is taken")

// Claim registers a cluster's name at the destination if the name is not registered yet, or not with the owner's State.
// If the name belongs to another cluster, or owner is New and the state is in the other place, the error is a
// *ConnectError that wraps ErrNameTaken and mentions the name of the sink.
func Claim(ctx context.Context, d Identified, sink string, owner Owner) error {
	found, err := d.Registered(ctx, owner.Cluster)
	moves := found.UID == owner.UID && found.State != owner.State && !owner.New
	if err == nil && (found.UID == "" || moves) {
		if err = d.Register(ctx, owner, found.UID); err == nil {
			found, err = d.Registered(ctx, owner.Cluster) // another cluster may have registered the name first
		}
	}
	switch {
	case err != nil:
		return err
	case found.UID != owner.UID:
		return NameTaken(d, sink, owner, found)
	case found.State != owner.State:
		return stateElsewhere(d, sink, owner, found)
	}
	return nil
}

// stateElsewhere returns the error for a new bridge that keeps its state in another place than the one before it.
func stateElsewhere(d Identified, sink string, owner Owner, found Registration) *ConnectError {
	places := map[State]string{StateFile: "only in a directory (usually on a volume)", StateLog: "in a log (state.log)"}
	return &ConnectError{
		Step: StepName, Rejected: true,
		Err: fmt.Errorf("%w: in %s, %q is registered for a bridge that keeps its state %s (since %s); this one keeps it %s, "+
			"and does not have that state", ErrNameTaken, d.Destination(), owner.Cluster, places[found.State],
			found.Since.UTC().Format(time.RFC3339), places[owner.State]),
		Remedy: "move in two steps: first a bridge with both, the directory and state.log, then without the one that goes; " +
			"or, if that state is lost, begin without it: bridge claim --config FILE --sink " + sink,
	}
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
	// OnDestination is called when the identity of the destination becomes known or changes, and the name belongs to the
	// owner, before anything is sent there. (If the identity changes during Send, it is called after Send.) While it
	// returns an error, nothing is sent. It is called by the goroutine of Connect and Send. It may be nil.
	OnDestination func(name string) error
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
	return g.identify(ctx, false)
}

// Send implements Sink. It sends nothing while the name belongs to another cluster.
func (g *Guard) Send(ctx context.Context, batch []*event.Message, results []error) {
	if err := g.identify(ctx, true); err != nil {
		for i := range results {
			results[i] = err
		}
		return
	}
	g.Sink.Send(ctx, batch, results)
	if d, ok := g.Sink.(Identified); ok && g.isElsewhere(d) {
		_ = g.report(d) // after an error, the next Send tries again
	}
}

// identify claims the name unless it is already claimed at this destination, and then reports the destination. If the
// owner's UID is unknown, the destination is reported only if anyway is set.
func (g *Guard) identify(ctx context.Context, anyway bool) error {
	d, ok := g.Sink.(Identified)
	if !ok {
		return nil
	}
	changed, owner := g.isElsewhere(d), g.Owner()
	claim := owner
	claim.New = false
	switch {
	case owner.UID == "" && !anyway:
		return nil
	case owner.UID != "" && claim != g.claimed:
		if err := g.claim(ctx, d, owner); err != nil {
			return err
		}
		g.claimed = claim
	}
	if changed {
		return g.report(d)
	}
	return nil
}

func (g *Guard) claim(ctx context.Context, d Identified, owner Owner) error {
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
	return err
}

// isElsewhere reports whether the identity of the destination has changed, and forgets what was claimed if it has. It
// can change while the sink is connected, for example if a stream is deleted and created again.
func (g *Guard) isElsewhere(d Identified) bool {
	changed := d.Destination() != g.destination
	if changed {
		g.claimed = Owner{}
	}
	return changed
}

// report calls OnDestination.
func (g *Guard) report(d Identified) error {
	name := d.Destination()
	if name != "" && g.OnDestination != nil {
		if err := g.OnDestination(name); err != nil {
			return err
		}
	}
	g.destination = name
	return nil
}
