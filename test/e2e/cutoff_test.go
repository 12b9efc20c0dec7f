package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/scale"
)

// cut is an outage of connections for twice the duration of the Lease.
type cut struct {
	of       string
	proxies  func(leader, standby *links) []*sinktest.Proxy
	takeOver bool          // another replica takes over
	pause    time.Duration // the longest of the stream
}

// cuts returns all outages, three of them in `make test`. Replicas with different addresses have different
// configurations, so each lets the other one try first, which makes a take-over longer.
func cuts() []cut {
	lease := leaseDuration()
	takeOver, outage := takeOverTime()+3*time.Second, cutTime()+3*time.Second
	return []cut{
		{"leader and log", func(l, _ *links) []*sinktest.Proxy { return l.log }, false, lease},
		{"leader and everything", func(l, _ *links) []*sinktest.Proxy { return l.all() }, true, takeOver},
		{"all and API server", func(l, s *links) []*sinktest.Proxy { return slices.Concat(l.api, s.api) }, false, outage},
		{"leader and API server", func(l, _ *links) []*sinktest.Proxy { return l.api }, true, takeOver},
		{"leader and Kafka", func(l, _ *links) []*sinktest.Proxy { return l.kafka }, false, lease},
		{"leader and JetStream", func(l, _ *links) []*sinktest.Proxy { return l.nats }, false, outage},
	}
}

// cutOff: under random changes, the leader can't reach one thing or all, or no replica can reach the API server. What
// was sent arrives when the network is back. Each broker has each revision once, in order, and no gap.
func (r *replicated) cutOff() {
	t, of := r.t, r.links
	var all []*bridge
	for _, l := range of {
		b := newReplicas(
			t,
			r.kubeconfig(l),
			r.namespace,
			jetStreamLog(natsURLs(l.log)),
			r.behind(l).configWithWindow(),
		).withShortLease().start()
		if all = append(all, b); len(all) == 1 {
			b.waitLeader()
		}
	}
	changes := startChanges(t, r.cs, r.namespace, 60, scale.Of(60, 150), r.resources...)
	delivered, probed := watchPauses(t, r.js[0], "k8s.>"), watchProbe(t, r.js[0])
	for range scale.Of(1, 3) {
		for _, c := range cuts()[:scale.Of(3, 6)] {
			holdsOnce(t, func(string) (err error) {
				leader := waitLeading(t, all)
				began := time.Now()
				proxies := c.proxies(of[leader], of[1-leader])
				freeze(proxies)
				pause(t, cutTime())
				if took := all[1-leader].leads() == nil; took != c.takeOver {
					err = fmt.Errorf("%s: another replica has taken over: %t", c.of, took)
				}
				thaw(proxies)
				waitLeading(t, all)
				longest, probe := delivered.longest(began), probed.longest(began)
				t.Logf("%s: the longest pause of the stream was %v, that of the probe %v", c.of, longest, probe)
				if longest-probe > c.pause {
					err = errors.Join(err, fmt.Errorf("%s: nothing was delivered to the stream for %v", c.of, longest))
				}
				return err
			})
		}
	}
	waitLeading(t, all)
	changes.stop()
	truth := r.upTo(all...)
	for _, b := range all {
		b.stop()
	}
	r.judge(truth)
}

// takeOverTime is how long a take-over may take if the leader stops to renew the Lease.
func takeOverTime() time.Duration { return leaseDuration() + 3*time.Second }

// cutTime is how long the network is cut: twice the Lease, or as long as a take-over may take.
func cutTime() time.Duration { return max(2*leaseDuration(), takeOverTime()) }

// waitLeading is like [waitOneLeader], and waits until hardly an event waits. It returns which replica leads.
func waitLeading(t *testing.T, all []*bridge) int {
	t.Helper()
	leader, _ := waitOneLeader(t, all[0], all[1])
	eventually(t, time.Minute, func() error {
		if n := leader.waiting(); n > 50 {
			return fmt.Errorf("%.0f events wait", n)
		}
		return nil
	})
	return slices.Index(all, leader)
}
