package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
)

// leaseDuration is the duration of the Lease in these tests.
func leaseDuration() time.Duration { return scale.Of(2*time.Second, 10*time.Second) }

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
	d := leaseDuration()
	return &replicas{
		t: t, kubeconfig: kubeconfig, state: ", log: {" + log + "}",
		config: fmt.Sprintf("redactionKeyFile: %q\nelection: {lease: {name: %s, namespace: default}, leaseDuration: %s, "+
			"renewDeadline: %s, retryPeriod: %s}\n%s", key, lease, d, d*7/10, d/10, config),
	}
}

func (r *replicas) start() *bridge {
	r.t.Helper()
	return startBridgeWith(r.t, r.t.TempDir(), r.kubeconfig, r.state, r.config)
}

func (b *bridge) leads() error {
	if b.metric("deltabridge_leader") != 1 {
		return errors.New("it is not the leader")
	}
	return nil
}

// waitLeader waits until a replica delivers.
func (b *bridge) waitLeader() {
	b.t.Helper()
	eventually(b.t, time.Minute, func() error { return errors.Join(b.leads(), b.ready()) })
}

// TestTakeOver: the leader is killed many times under random changes, and its directory is lost each time. A standby
// takes over. Each broker has each revision once.
func TestTakeOver(t *testing.T) { // alone: it runs six brokers
	r := newReplicated(t)
	all := newReplicas(t, r.c.Kubeconfig(), r.namespace,
		fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true, replicas: 3}}", strings.Join(r.natsURLs, ",")),
		r.config())
	leader := all.start()
	leader.waitLeader()
	changes := r.startChanges()
	standby := all.start()
	var pauses []time.Duration
	kills := scale.Of(5, 30)
	for range kills {
		standby.waitReady()
		pause(t, time.Duration(rand.IntN(2500))*time.Millisecond)
		killed := time.Now()
		leader.kill()
		leader, standby = standby, all.start()
		eventually(t, time.Minute, func() error {
			if leader.metric("deltabridge_events_acknowledged_total", "sink=jetstream") == 0 {
				return errors.New("the standby has not delivered anything")
			}
			return nil
		})
		pauses = append(pauses, time.Since(killed))
	}
	leader.waitLeader()
	changes.stop(t)
	truth := r.upTo(leader)
	leader.stop()
	standby.stop()
	t.Logf("%d kills, %d changes; pauses of %v", kills, len(truth), pauses)
	if longest := slices.Max(pauses); longest > leaseDuration()+3*time.Second {
		t.Errorf("the longest pause was %v", longest)
	}
	r.judgeKafka(truth)
	r.judgeStream(truth)
	r.judgeMirror(truth)
}
