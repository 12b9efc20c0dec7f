package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/bench/listwatch"
	"github.com/deltabridge/deltabridge/test/poll"
)

const (
	smallObject = 2600
	largeObject = 8000

	// checkpointed limits the time until the last event is in the checkpoint, which is written once a second.
	checkpointed = 1500 * time.Millisecond

	// profileLength is longer than any load that is profiled.
	profileLength = 8 * time.Second

	// stalled is the time without a new message at the broker after which a run fails.
	stalled = 40 * time.Second

	// loadTimeout limits one run.
	loadTimeout = 10 * time.Minute
)

// sample has the measurements of one run of one program.
type sample struct {
	events    int
	seconds   float64
	cpu       time.Duration
	brokerCPU time.Duration
	resident  int64
	peak      int64
	liveHeap  float64         // live heap of an idle bridge, in bytes
	latencies []time.Duration // sorted
	received  int64           // bytes that the broker has sent
	repeated  int             // events that are in the broker twice
	accepted  float64         // seconds until the intake had stored all audit events
}

func (s sample) rate() float64        { return float64(s.events) / s.seconds }
func (s sample) cpuPerEvent() float64 { return micros(s.cpu) / float64(s.events) }
func (s sample) cpuSeconds() float64  { return s.cpu.Seconds() }
func (s sample) wallSeconds() float64 { return s.seconds }
func (s sample) peakMB() float64      { return megabytes(s.peak) }

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// replay sends 100,000 events as fast as the client reads them.
func replay(ctx context.Context, b *bench) error {
	load := listwatch.Options{Events: b.scaled(100_000), Keys: 5000, Size: smallObject}
	return b.onEachBroker(ctx, func(to broker) error {
		p, err := b.replayPairs(ctx, to, load, false)
		if err == nil {
			b.report.replay(to.name(), p)
		}
		return err
	})
}

// sameMessages is the replay beside a floor that sends the same messages as the bridge.
func sameMessages(ctx context.Context, b *bench) error {
	to, err := b.startBroker(ctx, jetStreamName)
	if err != nil {
		return err
	}
	load := listwatch.Options{Events: b.scaled(100_000), Keys: 5000, Size: smallObject}
	p, err := b.replayPairs(ctx, to, load, true)
	if err = errors.Join(err, to.close()); err != nil {
		return err
	}
	b.report.add(
		"same messages",
		"The replay, beside a program that makes the same events of the lines, and publishes them with the same subjects, ids "+
			"and headers. It guarantees nothing: no order, no checkpoint, no retry. Bridge / that program.",
		cell{"broker", to.name()},
		p.compared("events/s", "%.0f", sample.rate),
		p.compared("CPU us/event", "%.1f", sample.cpuPerEvent),
		p.compared("peak memory MB", "%.0f", sample.peakMB),
	)
	return nil
}

// replayPairs runs the floor and the bridge in turn. With events, the floor sends the same messages as the bridge.
func (b *bench) replayPairs(ctx context.Context, to broker, load listwatch.Options, events bool) (p pairs, err error) {
	warm := load
	warm.Events = max(load.Events/5, 1)
	if _, err := b.replayFloor(ctx, to, warm, false); err != nil { // the first run on a cold broker is not representative
		return p, err
	}
	return b.inTurn(
		func() (sample, error) { return b.replayFloor(ctx, to, load, events) },
		func(n int) (sample, error) {
			return b.replayBridge(
				ctx,
				to,
				load,
				bridgeSetup{sinks: []string{"bench"}},
				fmt.Sprintf("replay-%s-%d", to.name(), n),
			)
		},
		func(floor, bridge sample) {
			b.say(
				"replay, %s: floor %.0f events/s, %.1f us CPU/event, %.0f MB; bridge %.0f events/s, %.1f us CPU/event, %.0f MB; ratio of the CPU %.2f",
				to.name(),
				floor.rate(),
				floor.cpuPerEvent(),
				megabytes(floor.peak),
				bridge.rate(),
				bridge.cpuPerEvent(),
				megabytes(bridge.peak),
				bridge.cpuPerEvent()/floor.cpuPerEvent(),
			)
		})
}

// inTurn runs pairs of the floor and the bridge. Which of them runs first alternates from pair to pair.
func (b *bench) inTurn(
	floor func() (sample, error),
	bridge func(n int) (sample, error),
	say func(floor, bridge sample),
) (p pairs, err error) {
	for n := range b.runs {
		var of [2]sample
		for turn := range of {
			if (turn+n)%2 == 0 {
				of[0], err = floor()
			} else {
				of[1], err = bridge(n)
			}
			if err != nil {
				return p, err
			}
		}
		say(of[0], of[1])
		p.floor, p.bridge = append(p.floor, of[0]), append(p.bridge, of[1])
	}
	return p, nil
}

func (b *bench) replayFloor(ctx context.Context, to broker, load listwatch.Options, events bool) (s sample, err error) {
	const name = "floor"
	if err := to.create(ctx, name); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, to.remove(ctx, name)) }()
	server, err := b.startListWatch(ctx, load)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	args := slices.Concat(
		to.floorArgs(name),
		server.floorTo(b, fmt.Sprintf("?watch=true&resourceVersion=%d", int64(listwatch.Base))),
		[]string{"-count", fmt.Sprint(load.Events)},
	)
	var env []string
	if events {
		args, env = append(args, "-events"), []string{"GOMAXPROCS=1"} // as the bridge
	}
	floor, err := startWith(env, b.floorBinary, args...)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, floor.stop()) }()
	if _, err := floor.firstWord(ctx); err != nil {
		return s, err
	}
	s, err = measure(ctx, floor, to, []string{name}, load.Events, server.release)
	if err != nil {
		return s, err
	}
	err = floor.prints(ctx, func(output string) bool { return strings.Contains(output, "done\n") })
	return s, errors.Join(err, s.finish(floor))
}

func (b *bench) replayBridge(
	ctx context.Context,
	to broker,
	load listwatch.Options,
	setup bridgeSetup,
	run string,
) (s sample, err error) {
	r, server, end, err := b.replaying(ctx, to, load, setup)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, end()) }()
	finish := b.profile(ctx, r, run, profileLength)
	s, err = measure(ctx, r.program, to, setup.sinks, load.Events, server.release)
	if err == nil {
		err = pause(ctx, checkpointed)
	}
	if err != nil {
		return s, err
	}
	if err := errors.Join(s.finish(r.program), finish(), r.delivered(ctx, load.Events*len(setup.sinks))); err != nil {
		return s, err
	}
	s.liveHeap, err = r.liveHeap(ctx)
	return s, err
}

// replaying creates the destinations and starts a bridge on a load that is released later.
func (b *bench) replaying(
	ctx context.Context,
	to broker,
	load listwatch.Options,
	setup bridgeSetup,
) (r *bridge, server *listWatch, end func() error, err error) {
	var ends []func() error
	end = func() (err error) {
		for _, end := range slices.Backward(ends) {
			err = errors.Join(err, end())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	for _, name := range setup.sinks {
		if err := to.create(ctx, name); err != nil {
			return r, server, end, err
		}
		ends = append(ends, func() error { return to.remove(context.WithoutCancel(ctx), name) })
	}
	if server, err = b.startListWatch(ctx, load); err != nil {
		return r, server, end, err
	}
	ends = append(ends, server.stop)
	setup.kubeconfig = server.kubeconfig
	if r, err = b.startBridge(ctx, setup, to); err != nil {
		return r, server, end, err
	}
	ends = append(ends, r.end)
	if err = r.ready(ctx); err != nil {
		return r, server, end, err
	}
	// A bridge is ready when the existing objects are in its queues, not when they have arrived.
	if err = untilSlow(ctx, func() error { return r.idle(ctx, load.Objects*len(setup.sinks)) }); err == nil {
		err = pause(ctx, checkpointed)
	}
	return r, server, end, err
}

// heldOf returns the number of messages in each destination.
func heldOf(ctx context.Context, to broker, destinations []string) ([]int64, error) {
	var all []int64
	for _, name := range destinations {
		held, err := to.held(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, held)
	}
	return all, nil
}

// measure releases a load and waits until each destination has all of it.
func measure(
	ctx context.Context,
	p *program,
	to broker,
	destinations []string,
	events int,
	release func(context.Context) error,
) (s sample, err error) {
	before, err := heldOf(ctx, to, destinations) // messages from before the load
	if err != nil {
		return s, err
	}
	if s.cpu, err = p.cpu(); err != nil {
		return s, err
	}
	if s.brokerCPU, err = to.cpu(); err != nil {
		return s, err
	}
	began := time.Now()
	if err := release(ctx); err != nil {
		return s, err
	}
	return s, s.await(ctx, p, to, destinations, before, events, began)
}

// await waits until each destination has the given number of events more than before.
func (s *sample) await(
	ctx context.Context,
	p *program,
	to broker,
	destinations []string,
	before []int64,
	events int,
	began time.Time,
) error {
	s.events = events
	progress, sum := time.Now(), int64(-1)
	err := until(ctx, loadTimeout, func() error {
		held, err := heldOf(ctx, to, destinations)
		if p.Ended() {
			return poll.Permanent(p.failed(errors.New("exited unexpectedly")))
		}
		total := int64(0)
		for n := range held {
			more := held[n] - before[n]
			if total += more; more < int64(events) {
				err = fmt.Errorf("%s holds %d of %d events", destinations[n], more, events)
			}
		}
		switch {
		case total != sum:
			progress, sum = time.Now(), total
		case time.Since(progress) > stalled:
			err = poll.Permanent(p.failed(fmt.Errorf("no message for %s: %w", stalled, err)))
		}
		return err
	})
	s.seconds = time.Since(began).Seconds()
	if err != nil {
		return err
	}
	cpu, err := to.cpu()
	s.brokerCPU = cpu - s.brokerCPU
	return err
}

// finish records the CPU and the memory that the program has used.
func (s *sample) finish(p *program) error {
	cpu, err := p.cpu()
	if err != nil {
		return err
	}
	s.cpu = cpu - s.cpu
	s.resident, s.peak, err = memoryOf(p.Pid)
	return err
}
