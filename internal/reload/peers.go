package reload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/pause"
)

// peersPatience is how long the leader waits for other replicas before it uses a changed configuration. The kubelet
// brings a changed ConfigMap into Pods within about 90 seconds. peersInterval is the interval between two checks.
const (
	peersPatience = 2 * time.Minute
	peersInterval = time.Second
)

// awaitPeers waits until all other replicas that answer have the configuration next, and the state log has everything
// that this process has. If a replica took over without knowing that a filter has changed, it would repeat events, and
// could not send leaves of objects that only the changed filter has passed. awaitPeers returns false if ctx has ended,
// or if next is not what is to be used any more.
func (r *Reloader) awaitPeers(ctx context.Context, next *Loaded) bool {
	until := time.Now().Add(peersPatience)
	for ctx.Err() == nil && r.accepted() == next {
		others := lagging(r.opts.Peers(ctx, next.HTTP.Peers), r.opts.Name, next.Hash)
		if len(next.HTTP.Peers) == 0 {
			others = []string{"the other replicas, which http.peers does not name"}
		}
		switch {
		case len(others) > 0 && !time.Now().After(until):
			r.setWaits(next, "waits at most until "+until.UTC().Format(time.RFC3339)+" for "+strings.Join(others, ", "))
		case !r.reachesLog(ctx):
			r.setWaits(next, "waits until the state log is available, because no other replica would know of the change")
		default:
			if len(others) > 0 {
				r.opts.Logger.Warn("loading the changed configuration, although other replicas do not have it yet",
					"replicas", others)
			}
			return true
		}
		pause.For(ctx, peersInterval)
	}
	return false
}

func (r *Reloader) reachesLog(ctx context.Context) bool {
	r.mu.Lock()
	c := r.copy
	r.mu.Unlock()
	return c == nil || c.Reach(ctx) == nil
}

// setWaits records what a configuration waits for, unless the file has changed meanwhile.
func (r *Reloader) setWaits(next *Loaded, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == next {
		r.problem, r.refused, r.waits = nil, "", text
	}
}

// lagging returns the names of the other replicas that answer and have another configuration.
func lagging(answers []control.Answer, self, hash string) (names []string) {
	for _, a := range answers {
		if a.Status != nil && a.Replica.Name != self && a.Configuration.Hash != hash {
			names = append(names, a.Replica.Name)
		}
	}
	return names
}

// refusalPatience is how long a replica may refuse the configuration before Await fails. The reason may be gone, such
// as a missing file with a credential, and the replica has not tried again yet.
const refusalPatience = 2 * pollInterval

// Await waits until all replicas that answer use the configuration with the hash. read returns the answers. Await
// returns an error if a replica refuses this configuration, or if ctx ends.
func Await(ctx context.Context, read func() []control.Answer, hash string) error {
	for began := time.Now(); ; {
		answers := read()
		waits, err := notInUse(answers, hash)
		if err == nil && len(waits) == 0 || err != nil && time.Since(began) >= refusalPatience {
			return err
		}
		if pause.For(ctx, time.Second) {
			continue
		}
		if err != nil {
			return err
		}
		return errors.New("the configuration in the file is not in use: " + strings.Join(waits, "; "))
	}
}

// notInUse returns, for each replica that does not use the configuration with the hash, why. It returns an error if a
// replica refuses this configuration.
func notInUse(answers []control.Answer, hash string) (waits []string, err error) {
	answered := false
	for _, a := range answers {
		if a.Status == nil {
			continue
		}
		answered = true
		name, c := console.Clean(a.Replica.Name), a.Configuration
		switch {
		case c.Error != nil && c.Refused == hash:
			return nil, fmt.Errorf("%s refuses the configuration: %s", name, console.Clean(c.Error.Text))
		case c.Error != nil: // the kubelet may still bring the file
			waits = append(waits, name+" refuses the file that it has: "+console.Clean(c.Error.Text))
		case c.Hash == hash:
		case c.Waits != "":
			waits = append(waits, name+" "+console.Clean(c.Waits))
		default:
			waits = append(waits, name+" uses another configuration")
		}
	}
	if !answered {
		for _, a := range answers {
			waits = append(waits, a.Address+": "+console.Clean(a.Error))
		}
		waits = append(waits, "no bridge answers")
	}
	return waits, nil
}
