package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	churnObjects = 500
	churnRate    = 1000 // commits per second, if the API server is fast enough
	churnWarmUp  = 2 * time.Second
	churnTime    = 20 * time.Second
)

// churn puts a real API server under load. The floor and the bridge watch the same commits at the same time.
func churn(ctx context.Context, b *bench) error {
	api, err := b.startAPIServer(ctx)
	if err != nil {
		return err
	}
	err = api.createConfigMaps(ctx, churnObjects)
	if err == nil {
		err = b.onEachBroker(ctx, func(to broker) error { return b.churnWith(ctx, api, to) })
	}
	return errors.Join(err, api.Stop())
}

func (b *bench) churnWith(ctx context.Context, api *apiServer, to broker) error {
	var p pairs
	for n := range b.runs {
		floor, bridge, err := b.churnOnce(ctx, api, to, fmt.Sprintf("churn-%s-%d", to.name(), n))
		if err != nil {
			return err
		}
		b.say("churn, %s: %.0f commits/s; floor %.0f us CPU/event, p50 %.1f ms, p99 %.1f ms, max %.0f ms; "+
			"bridge %.0f us, %.1f ms, %.1f ms, %.0f ms", to.name(), floor.rate(),
			floor.cpuPerEvent(), floor.latency(.5), floor.latency(.99), floor.latency(1),
			bridge.cpuPerEvent(), bridge.latency(.5), bridge.latency(.99), bridge.latency(1))
		p.floor, p.bridge = append(p.floor, floor), append(p.bridge, bridge)
	}
	b.report.churn(to.name(), p)
	return nil
}

func (r *report) churn(broker string, p pairs) {
	r.add(
		"churn",
		"A real API server under updates of ConfigMaps of 2.6 KB; both watch the same commits at the same time. Latency from before "+
			"the request that commits until an independent consumer of the broker has the event. Bridge / floor.",
		cell{"broker", broker},
		figure("commits/s", "%.0f", p.floor, sample.rate),
		p.compared("CPU us/event", "%.0f", sample.cpuPerEvent),
		p.compared("p50 ms", "%.1f", at(.5)),
		p.compared("p99 ms", "%.1f", at(.99)),
		p.compared("max ms", "%.0f", at(1)),
		p.compared("peak memory MB", "%.0f", sample.peakMB),
	)
	_, _, cpu := p.each(sample.cpuPerEvent)
	_, _, p99 := p.each(at(.99))
	r.measure("churn/cpu/"+broker, cpu)
	r.measure("churn/p99/"+broker, p99)
}

// at returns sample.latency of a quantile.
func at(quantile float64) func(sample) float64 {
	return func(s sample) float64 { return s.latency(quantile) }
}

// latency returns a quantile of the latencies, in milliseconds.
func (s sample) latency(quantile float64) float64 {
	if len(s.latencies) == 0 {
		return 0
	}
	return float64(s.latencies[int(quantile*float64(len(s.latencies)-1))].Nanoseconds()) / 1e6
}

// churnOnce runs the floor and the bridge at the same time.
func (b *bench) churnOnce(
	ctx context.Context,
	api *apiServer,
	to broker,
	run string,
) (floorSample, bridgeSample sample, err error) {
	const floorName, bridgeName = "floor", "bench"
	for _, name := range []string{floorName, bridgeName} {
		if err := to.create(ctx, name); err != nil {
			return sample{}, sample{}, err
		}
		defer func() { err = errors.Join(err, to.remove(ctx, name)) }()
	}
	floor, err := start(b.floorBinary, append(to.floorArgs(floorName), b.floorTo(api, "?watch=true")...)...)
	if err != nil {
		return sample{}, sample{}, err
	}
	defer func() { err = errors.Join(err, floor.stop()) }()
	if _, err := floor.firstWord(ctx); err != nil {
		return sample{}, sample{}, err
	}
	setup := bridgeSetup{kubeconfig: api.Kubeconfig(), watch: api.watch(), sinks: []string{bridgeName}}
	r, err := b.startBridge(ctx, setup, to)
	if err != nil {
		return sample{}, sample{}, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	if err := r.ready(ctx); err != nil {
		return sample{}, sample{}, err
	}
	c := &comparison{api: api, to: to, names: []string{floorName, bridgeName}, programs: []*program{floor, r.program}}
	for _, name := range []string{floorName, bridgeName} {
		received := &latencies{since: time.Now().UnixNano()}
		stop, err := to.consume(ctx, name, received.take)
		if err != nil {
			return sample{}, sample{}, err
		}
		defer stop()
		c.received = append(c.received, received)
	}
	finish := func() error { return nil }
	samples, err := c.measure(
		ctx,
		b.scaled(int(churnTime/time.Second)),
		func() { finish = b.profile(ctx, r, run, churnTime) },
	)
	if err != nil {
		return sample{}, sample{}, err
	}
	return samples[0], samples[1], finish()
}

// comparison is one load that several programs watch.
type comparison struct {
	api      *apiServer
	to       broker
	names    []string // names of the destinations
	programs []*program
	received []*latencies // by destination
}

// measure runs a load for some seconds, and returns what each program has used per commit.
func (c *comparison) measure(ctx context.Context, seconds int, profile func()) ([]sample, error) {
	if _, err := c.load(ctx, churnWarmUp); err != nil {
		return nil, err
	}
	samples := make([]sample, len(c.programs))
	for n, p := range c.programs {
		var err error
		if samples[n].cpu, err = p.cpu(); err != nil {
			return nil, err
		}
		c.received[n].reset()
	}
	profile()
	began := time.Now()
	commits, err := c.load(ctx, time.Duration(seconds)*time.Second)
	if err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	if err := pause(ctx, checkpointed); err != nil {
		return nil, err
	}
	for n, p := range c.programs {
		samples[n].events, samples[n].seconds = commits, took
		if err := samples[n].finish(p); err != nil {
			return nil, err
		}
		samples[n].latencies = c.received[n].sorted()
	}
	return samples, nil
}

// load updates the objects in turn, and returns when every consumer has got all updates.
func (c *comparison) load(ctx context.Context, length time.Duration) (commits int, err error) {
	var before []int
	for _, r := range c.received {
		before = append(before, r.count())
	}
	limiter := rate.NewLimiter(churnRate, writers)
	deadline := time.Now().Add(length)
	var committed atomic.Int64
	err = parallel(ctx, writers, func(ctx context.Context, writer int) error {
		for n := writer; time.Now().Before(deadline); n += writers {
			if err := limiter.Wait(ctx); err != nil {
				return err
			}
			o := realConfigMap(n % churnObjects)
			o.Annotations[committedAt] = strconv.FormatInt(time.Now().UnixNano(), 10)
			if _, err := c.api.client.CoreV1().ConfigMaps(benchNamespace).Update(ctx, o, metav1.UpdateOptions{}); err != nil {
				return err
			}
			committed.Add(1)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return int(committed.Load()), until(ctx, startTimeout, func() error {
		for n, r := range c.received {
			if got := r.count() - before[n]; got < int(committed.Load()) {
				return c.behind(ctx, n, got, int(committed.Load()))
			}
		}
		return nil
	})
}

// behind returns an error that describes a consumer which has not got all commits.
func (c *comparison) behind(ctx context.Context, n, got, commits int) error {
	err := fmt.Errorf(
		"the consumer of %s has %d of %d commits; the program said: %q",
		c.names[n],
		got,
		commits,
		c.programs[n].output.String(),
	)
	held, heldErr := c.to.held(ctx, c.names[n])
	return errors.Join(err, heldErr, fmt.Errorf("the broker holds %d messages", held))
}
