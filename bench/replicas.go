package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replicas measures the state log of 100,000 objects, and take-overs with and without a standby.
func replicas(ctx context.Context, b *bench) error {
	api, err := b.startAPIServer(ctx)
	if err != nil {
		return err
	}
	return errors.Join(b.replicasOf(ctx, api), api.Stop())
}

func (b *bench) replicasOf(ctx context.Context, api *apiServer) error {
	objects := b.scaled(100_000)
	b.say("replicas: creating %d objects", objects)
	if err := api.createConfigMaps(ctx, objects); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("key"), []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		return err
	}
	return b.onEachBroker(ctx, func(to broker) error {
		all, err := repeat(b.runs, func(n int) (takeOver, error) { return b.takeOver(ctx, api, to, objects, n) })
		if err == nil {
			b.report.replicas(to.name(), objects, all)
		}
		return err
	})
}

// takeOver has what one run of the scenario measured, in seconds and bytes.
type takeOver struct {
	log, read, warm, cold       float64
	leader, leaderPeak          float64
	standby, standbyPeak, after float64
}

func (r *report) replicas(broker string, objects int, all []takeOver) {
	memory := func(head string, now, peak func(takeOver) float64) cell {
		return cell{head, fmt.Sprintf("%.0f / %.0f", of(all, now)/1e6, of(all, peak)/1e6)}
	}
	r.add(
		"replicas",
		"A state log of ConfigMaps of 2.6 KB in the broker of the sink, with the default Lease. Read: from the start of a "+
			"replica with an empty directory until it can take over. Take-over: from SIGTERM to the leader until the broker "+
			"has the next event, with a standby; without one, from the start of a process with an empty directory. Memory: "+
			"resident, at rest / at the peak.",
		cell{"broker", broker},
		cell{"objects", fmt.Sprint(objects)},
		figure("log MB", "%.0f", all, func(s takeOver) float64 { return s.log / 1e6 }),
		figure("read s", "%.2f", all, func(s takeOver) float64 { return s.read }),
		figure("take-over s", "%.2f", all, func(s takeOver) float64 { return s.warm }),
		figure("without a standby s", "%.2f", all, func(s takeOver) float64 { return s.cold }),
		memory("leader MB", func(s takeOver) float64 { return s.leader }, func(s takeOver) float64 { return s.leaderPeak }),
		memory(
			"standby MB",
			func(s takeOver) float64 { return s.standby },
			func(s takeOver) float64 { return s.standbyPeak },
		),
		figure("standby MB after its take-over", "%.0f", all, func(s takeOver) float64 { return s.after / 1e6 }),
	)
}

// takeOver runs a leader, a standby that takes over, and a process without a directory that takes over from that.
func (b *bench) takeOver(ctx context.Context, api *apiServer, to broker, objects, run int) (s takeOver, err error) {
	const name = "bench"
	if err := to.create(ctx, name); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, to.remove(ctx, name)) }()
	log := fmt.Sprintf("state-%d", run)
	setup := bridgeSetup{
		kubeconfig: api.Kubeconfig(), watch: api.watch(), sinks: []string{name}, log: to.log(log),
		more: fmt.Sprintf("redactionKeyFile: %q\nelection: {lease: {name: %s, namespace: %s}}\n",
			b.path("key"), log, benchNamespace),
	}
	leader, err := b.startBridge(ctx, setup, to)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, leader.end()) }()
	err = untilSlow(ctx, func() error { return errors.Join(leader.idle(ctx, objects), leader.leads(ctx)) })
	if err == nil {
		err = pause(ctx, settling)
	}
	if err != nil {
		return s, err
	}
	if s.log, err = to.logBytes(ctx, log); err != nil {
		return s, err
	}
	if s.leader, s.leaderPeak, err = leader.memory(); err != nil {
		return s, err
	}
	began := time.Now()
	standby, err := b.startBridge(ctx, setup, to)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, standby.end()) }()
	if err := standby.ready(ctx); err != nil {
		return s, err
	}
	s.read = time.Since(began).Seconds()
	if err := pause(ctx, settling); err != nil {
		return s, err
	}
	if s.standby, s.standbyPeak, err = standby.memory(); err != nil {
		return s, err
	}
	if s.warm, err = b.untilNextEvent(ctx, api, to, name, func() (time.Time, error) {
		began := time.Now()
		return began, leader.stop()
	}); err != nil {
		return s, err
	}
	if err := errors.Join(standby.ready(ctx), pause(ctx, settling)); err != nil {
		return s, err
	}
	if s.after, _, err = standby.memory(); err != nil {
		return s, err
	}
	s.cold, err = b.untilNextEvent(ctx, api, to, name, func() (time.Time, error) {
		if err := standby.stop(); err != nil {
			return time.Time{}, err
		}
		began := time.Now()
		third, err := b.startBridge(ctx, setup, to)
		if err == nil {
			defer func() { *leader = *third }() // so that it is stopped
		}
		return began, err
	})
	if err == nil {
		b.say("replicas, %s: log of %.0f MB, read in %.2f s; first event after %.2f s with a standby, %.2f s without; "+
			"leader %.0f MB, standby %.0f MB", to.name(), s.log/1e6, s.read, s.warm, s.cold, s.leader/1e6, s.standby/1e6)
	}
	return s, err
}

// untilNextEvent changes the leader, and returns the seconds from the time that change returns until the destination
// has the event of an object that was updated after change.
func (b *bench) untilNextEvent(
	ctx context.Context, api *apiServer, to broker, name string, change func() (began time.Time, err error),
) (seconds float64, err error) {
	before, err := to.held(ctx, name)
	if err != nil {
		return 0, err
	}
	began, err := change()
	if err != nil {
		return 0, err
	}
	object := realConfigMap(0)
	object.Annotations[committedAt] = fmt.Sprint(began.UnixNano())
	if _, err = api.client.CoreV1().ConfigMaps(benchNamespace).Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}
	err = until(ctx, startTimeout, func() error {
		held, err := to.held(ctx, name)
		if err == nil && held == before {
			err = errors.New("no event has arrived")
		}
		return err
	})
	return time.Since(began).Seconds(), err
}

// leads checks that the bridge is the leader and ready.
func (r *bridge) leads(ctx context.Context) error {
	m, err := r.metrics(ctx)
	if err == nil && m.sum("deltabridge_leader") != 1 {
		err = errors.New("it is not the leader")
	}
	if err != nil {
		return err
	}
	return r.readyz(ctx)
}

func (r *bridge) memory() (now, peak float64, err error) {
	resident, highest, err := memoryOf(r.Pid)
	return float64(resident), float64(highest), err
}
