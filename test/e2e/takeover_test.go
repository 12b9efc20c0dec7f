package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/scale"
)

// leaseDuration is the duration of the Lease in these tests.
func leaseDuration() time.Duration { return scale.Of(2*time.Second, 10*time.Second) }

// steadyLease is that of the replicas whose leader must not change unless the test ends it: also if this machine stands
// still for five seconds.
func steadyLease() time.Duration { return scale.Of(12*time.Second, 10*time.Second) }

// replicas are bridges with one state log, each with a directory of its own, which is lost when it is killed.
type replicas struct {
	t                         *testing.T
	kubeconfig, state, config string
}

// newReplicas adds to a configuration what replicas require. log is the configuration of the state log.
func newReplicas(t *testing.T, kubeconfig, lease, log, config string) *replicas {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return &replicas{
		t: t, kubeconfig: kubeconfig, state: ", log: {" + log + "}",
		config: fmt.Sprintf("redactionKeyFile: %q\nelection: {lease: {name: %s, namespace: default}, leaseDuration: %s}\n%s",
			key, lease, steadyLease(), config),
	}
}

// withShortLease is for tests in which it expires often. The leader may also change at any other time.
func (r *replicas) withShortLease() *replicas {
	const key = "leaseDuration: "
	r.config = strings.Replace(r.config, key+steadyLease().String(), key+leaseDuration().String(), 1)
	return r
}

func (r *replicas) start() *bridge {
	r.t.Helper()
	return r.startIn(r.t.TempDir())()
}

// startIn returns a function that starts a replica with a directory.
func (r *replicas) startIn(dir string) func() *bridge {
	return func() *bridge {
		r.t.Helper()
		return startBridgeWith(r.t, dir, r.kubeconfig, r.state, r.config)
	}
}

// detached checks whether the replica has changes that the state log does not have.
func (b *bridge) detached(want float64) error {
	if got := b.metric("deltabridge_state_log_detached"); got != want {
		return fmt.Errorf("detached is %.0f", got)
	}
	return nil
}

func (b *bridge) leads() error {
	if b.metric("deltabridge_leader") != 1 {
		return errors.New("it is not the leader")
	}
	return nil
}

// waitLeader waits until a replica leads and has started.
func (b *bridge) waitLeader() {
	b.t.Helper()
	eventually(b.t, time.Minute, func() error { return errors.Join(b.leads(), b.ready()) })
}

// waitDelivered waits until hardly any event waits.
func (b *bridge) waitDelivered() {
	b.t.Helper()
	eventually(b.t, time.Minute, func() error {
		if n := b.waiting(); n > 50 {
			return fmt.Errorf("%.0f events wait", n)
		}
		return nil
	})
}

// waitCaughtUp waits until one of two replicas leads, has read what was written so far, and the other one can take over.
// It returns the leader first. If leaders fail faster than they can catch up, they read what the API server has forgotten
// in the end.
func (r *replicated) waitCaughtUp(one, other *bridge) (leader, standby *bridge) {
	r.t.Helper()
	list, err := r.cs.CoreV1().ConfigMaps(r.namespace).List(r.t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	last, err := strconv.ParseFloat(list.ResourceVersion, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, time.Minute, func() error {
		if leader, standby = one, other; other.leads() == nil {
			leader, standby = other, one
		}
		for _, resource := range r.resources {
			if at := leader.seen(resource); at < last {
				return fmt.Errorf("%s is at %.0f of %.0f", resource, at, last)
			}
		}
		return errors.Join(leader.leads(), standby.ready())
	})
	return leader, standby
}

// waiting returns how many events wait.
func (b *bridge) waiting() float64 {
	return b.metric("deltabridge_queue_events") + b.metric("deltabridge_spill_events")
}

// waitSuccessor waits until one of two replicas has delivered something, and returns it first. other may be nil.
func waitSuccessor(t *testing.T, one, other *bridge) (leader, standby *bridge) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		for _, b := range []*bridge{one, other} {
			if leader = b; b != nil && b.metric("deltabridge_events_acknowledged_total", "sink=jetstream") > 0 {
				return nil
			}
		}
		return errors.New("no replica has delivered anything")
	})
	if leader == one {
		return one, other
	}
	return other, one
}

// takeOvers: under random changes, the leader is killed and its directory is lost, it is stopped as in a rolling
// update, or it hangs for twice the duration of the Lease, in turn. A standby takes over. Each broker has each revision
// once, in order. Then the broker of the log fails as well.
func (r *replicated) takeOvers() {
	run := func(name string, test func(next *replicated)) {
		r.t.Run(name, func(t *testing.T) { test(r.next(t)) })
	}
	if !scale.Long() {
		run("log in JetStream", func(next *replicated) {
			next.takeOver(next.jetStreamLog(), 75, []string{"killed", "stopped", "hangs"})
		})
		return
	}
	run("log in a Kafka that fails", func(next *replicated) { next.failOver(next.kafkaLog(), 10) })
	run("hand-overs", func(next *replicated) {
		next.takeOver(next.jetStreamLog(), 550, slices.Repeat([]string{"stopped"}, 30))
	})
	run("kills", func(next *replicated) {
		kinds := slices.Repeat([]string{"killed", "killed", "killed", "killed", "killed", "killed", "hangs"}, 5)
		next.takeOver(next.jetStreamLog(), 200, kinds)
	})
	run("log in Kafka", func(next *replicated) {
		kinds := slices.Repeat([]string{"killed", "stopped", "killed", "stopped", "hangs"}, 3)
		next.takeOver(next.kafkaLog(), 200, kinds)
	})
	run("log in a JetStream that fails", func(next *replicated) { next.failOver(next.jetStreamLog(), 10) })
}

// takeOver is takeOvers with a state log, a number of changes per second, and what happens to the leaders.
func (r *replicated) takeOver(log stateLog, perSecond int, kinds []string) {
	t := r.t
	all := newReplicas(t, r.c.Kubeconfig(), r.namespace, log.config, r.configWithWindow()).withShortLease()
	leader := all.start()
	leader.waitLeader()
	changes := startChanges(t, r.cs, r.namespace, 60, perSecond, r.resources...)
	started := time.Now()
	delivered, probed := watchPauses(t, r.js[0], "k8s.>"), watchProbe(t, r.js[0])
	standby := all.start()
	pauses := map[string][]time.Duration{}
	for _, kind := range kinds {
		leader, standby = r.waitCaughtUp(leader, standby)
		var third *bridge
		if kind == "stopped" {
			leader.waitDelivered()
		}
		pause(t, scale.Of(0, 8*time.Second)+time.Duration(rand.IntN(2500))*time.Millisecond)
		old, began := leader, time.Now()
		switch kind {
		case "killed":
			leader.kill()
			third = all.start()
		case "stopped":
			leader.stop()
			third = all.start()
		case "hangs":
			leader.signal(syscall.SIGSTOP)
		}
		leader, standby = waitSuccessor(t, standby, third)
		if kind == "hangs" {
			pause(t, time.Until(began.Add(2*leaseDuration())))
			old.signal(syscall.SIGCONT)
			standby = old
		}
		pauses[kind] = append(pauses[kind], max(0, delivered.longest(began)-probed.longest(began)))
	}
	leader, standby = waitOneLeader(t, leader, standby)
	changes.stop()
	lasted := time.Since(started)
	truth := r.upTo(leader, standby)
	leader.stop()
	standby.stop()
	for kind, all := range pauses {
		slices.Sort(all)
		t.Logf("%s: pauses of %v", kind, all)
	}
	t.Logf("%d changes, %.0f per second; the longest pause of the probe was %v", len(truth),
		float64(len(truth))/lasted.Seconds(), probed.longest(time.Time{}))
	for _, pause := range append(pauses["killed"], pauses["hangs"]...) {
		if pause > leaseDuration()+scale.Of(time.Minute, 3*time.Second) {
			t.Errorf("a take-over took %v", pause)
		}
	}
	if stopped := pauses["stopped"]; len(stopped) >= 30 {
		median, longest := stopped[len(stopped)/2], stopped[len(stopped)-1]
		if median > time.Second || longest > 2*time.Second {
			t.Errorf("hand-overs: the median pause was %v, the longest %v", median, longest)
		}
	}
	r.judge(truth)
}

// arrivals are the times at which something arrived.
type arrivals struct {
	mu    sync.Mutex
	times []time.Time
}

func (a *arrivals) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = append(a.times, time.Now())
}

// longest returns the longest time without an arrival, from the last arrival before a moment on.
func (a *arrivals) longest(from time.Time) (longest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := 1; n < len(a.times); n++ {
		if a.times[n].After(from) {
			longest = max(longest, a.times[n].Sub(a.times[n-1]))
		}
	}
	return longest
}

// watchPauses records when messages on a subject arrive.
func watchPauses(t *testing.T, js *jetStream, subject string) *arrivals {
	t.Helper()
	conn, err := natsgo.Connect(js.url(), natsgo.Timeout(patience(natsgo.DefaultTimeout)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	a := &arrivals{}
	if _, err = conn.Subscribe(subject, func(*natsgo.Msg) { a.add() }); err != nil {
		t.Fatal(err)
	}
	return a
}

// watchProbe publishes a message every 20 milliseconds to a stream of its own, and records when it is acknowledged. Its
// pauses are those of the brokers and of this machine.
func watchProbe(t *testing.T, js *jetStream) *arrivals {
	t.Helper()
	js.create(jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Replicas: 3})
	api, closeConn := js.api()
	a, done := &arrivals{}, make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if _, err := api.Publish(ctx, "probe", nil); err == nil {
				a.add()
			}
			<-tick.C
		}
	}()
	t.Cleanup(func() { cancel(); <-done; closeConn() })
	return a
}
