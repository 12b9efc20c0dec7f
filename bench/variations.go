package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/deltabridge/deltabridge/bench/listwatch"
)

// celFilter reads two fields of the object. All objects of the load pass it.
const celFilter = "object.metadata.?labels['tier'].orValue('') == 'backend' && object.data['revision'] != ''"

// variation is a setting whose cost is measured.
type variation struct {
	name  string // in the identifier of its bound
	what  string
	setup bridgeSetup
	log   bool // add a state log in the broker of the sink
	keys  int  // the number of objects; if 0, 5,000
}

// variations compares settings with the default settings.
func variations(ctx context.Context, b *bench) error {
	if err := os.WriteFile(b.path("key"), []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		return err
	}
	all := []variation{
		{
			name:  "cel",
			what:  "a filter with `when: " + celFilter + "`",
			setup: bridgeSetup{filter: fmt.Sprintf("when: %q", celFilter)},
		},
		{name: "change", what: "`payload: change`", setup: bridgeSetup{keys: "payload: change"}},
		{
			// Each object changes once, since a later change replaces an earlier one.
			name: "debounce", what: "`debounce: 1s`, each object changes once", setup: bridgeSetup{filter: "debounce: 1s"},
			keys: 100_000,
		},
		{
			name: "log", what: "`state.log` in the same broker, with fences and positions that are read back", log: true,
			setup: bridgeSetup{more: fmt.Sprintf(
				"redactionKeyFile: %q\nelection: {lease: {name: bench, namespace: %s}}\n", b.path("key"), listwatch.Namespace)},
		},
	}
	return b.onFirstBroker(ctx, func(to broker) error {
		for _, v := range all {
			if err := b.compare(ctx, to, v); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
		}
		return nil
	})
}

// compare runs the replay with a variation and with the default settings in turn.
func (b *bench) compare(ctx context.Context, to broker, v variation) error {
	load := listwatch.Options{Events: b.scaled(100_000), Keys: b.scaled(cmp.Or(v.keys, 5000)), Size: smallObject}
	plain := bridgeSetup{sinks: []string{"bench"}}
	v.setup.sinks = plain.sinks
	p, err := b.inTurn(
		func() (sample, error) { return b.replayBridge(ctx, to, load, plain, v.name+"-without") },
		func(n int) (sample, error) {
			setup := v.setup
			if v.log {
				setup.log = to.log(fmt.Sprintf("log-%d", n))
			}
			return b.replayBridge(ctx, to, load, setup, fmt.Sprintf("%s-%d", v.name, n))
		},
		func(without, with sample) {
			b.say("%s: %.1f us CPU/event without, %.1f with", v.name, without.cpuPerEvent(), with.cpuPerEvent())
		})
	if err != nil {
		return err
	}
	b.report.add(
		"variations",
		"The replay, with a setting / with the default settings.",
		cell{"setting", v.what},
		p.compared("events/s", "%.0f", sample.rate),
		p.compared("CPU us/event", "%.1f", sample.cpuPerEvent),
		p.compared("peak memory MB", "%.0f", sample.peakMB),
	)
	_, _, ratio := p.each(sample.cpuPerEvent)
	b.report.measure(v.name+"/cpu", ratio)
	return nil
}

// grow measures how the cost grows with the number of known objects and of sinks.
func grow(ctx context.Context, b *bench) error {
	return b.onFirstBroker(ctx, func(to broker) error {
		if err := b.growObjects(ctx, to); err != nil {
			return err
		}
		return b.growSinks(ctx, to)
	})
}

func (b *bench) growObjects(ctx context.Context, to broker) error {
	for _, factor := range []int{1, 5, 25} {
		load := listwatch.Options{Objects: b.scaled(5000 * factor), Events: b.scaled(100_000), Size: smallObject}
		runs, err := repeat(b.runs, func(n int) (sample, error) {
			return b.replayBridge(
				ctx,
				to,
				load,
				bridgeSetup{sinks: []string{"bench"}},
				fmt.Sprintf("grow-objects-%d-%d", factor, n),
			)
		})
		if err != nil {
			return err
		}
		perObject := func(bytes float64) float64 { return bytes / float64(load.Objects) / 1e3 }
		heap := func(s sample) float64 { return perObject(s.liveHeap) }
		b.report.add(
			"grow: objects",
			"Updates that go round all objects of 2.6 KB, which exist at the start.",
			cell{"objects", fmt.Sprint(load.Objects)},
			cell{"events", fmt.Sprint(load.Events)},
			figure("events/s", "%.0f", runs, sample.rate),
			figure("CPU us/event", "%.1f", runs, sample.cpuPerEvent),
			figure("live heap KB/object", "%.2f", runs, heap),
			figure("resident KB/object", "%.2f", runs, func(s sample) float64 { return perObject(float64(s.resident)) }),
			figure("resident MB at the peak", "%.0f", runs, sample.peakMB),
		)
		peak := of(runs, sample.peakMB)
		if b.scale == 1 {
			b.report.measure("grow/peak", peak) // the last value, with the most objects, is reported
		}
		b.say("grow: %d objects: %.0f events/s, %.1f us CPU/event, live heap %.2f KB/object, peak %.0f MB",
			load.Objects, of(runs, sample.rate), of(runs, sample.cpuPerEvent), of(runs, heap), peak)
	}
	return nil
}

func (b *bench) growSinks(ctx context.Context, to broker) error {
	load := listwatch.Options{Events: b.scaled(20_000), Keys: 5000, Size: smallObject}
	one, alone := 0.0, 0.0 // CPU per event, and events/s
	for _, count := range []int{1, 4, 16} {
		setup := bridgeSetup{}
		for n := range count {
			setup.sinks = append(setup.sinks, fmt.Sprintf("bench%d", n))
		}
		runs, err := repeat(b.runs, func(n int) (sample, error) {
			return b.replayBridge(ctx, to, load, setup, fmt.Sprintf("grow-sinks-%d-%d", count, n))
		})
		if err != nil {
			return err
		}
		rate, cpu := of(runs, sample.rate), of(runs, sample.cpuPerEvent)
		each := cpu / float64(count)
		switch count {
		case 1:
			one, alone = each, rate
		case 4:
			b.report.measure("grow/four", alone/rate)
		}
		b.report.measure("grow/sinks", each/one) // the last value, with the most sinks, is reported
		b.report.add(
			"grow: sinks",
			"The replay with 20,000 events, each to every sink.",
			cell{"sinks", fmt.Sprint(count)},
			cell{"events/s", fmt.Sprintf("%.0f", rate)},
			cell{"CPU us/event", fmt.Sprintf("%.1f", cpu)},
			cell{"CPU us/event and sink", fmt.Sprintf("%.1f", each)},
			figure("resident MB at the peak", "%.0f", runs, sample.peakMB),
		)
		b.say("grow: %d sinks: %.0f events/s, %.1f us CPU/event, %.1f for each sink", count, rate, cpu, each)
	}
	return nil
}

// repeat calls run as often as runs says.
func repeat[T any](runs int, run func(n int) (T, error)) (all []T, err error) {
	for n := range runs {
		s, err := run(n)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// of returns the median of a measurement over all runs.
func of[T any](runs []T, value func(T) float64) float64 {
	var values []float64
	for _, s := range runs {
		values = append(values, value(s))
	}
	return median(values)
}

// outage stops the broker before the load, and restarts it when the bridge has received all events.
func outage(ctx context.Context, b *bench) error {
	load := listwatch.Options{Events: b.scaled(100_000), Keys: 5000, Size: smallObject}
	setup := bridgeSetup{sinks: []string{"bench"}}
	return b.onEachBroker(ctx, func(to broker) error {
		p, err := b.inTurn(
			func() (sample, error) { return b.replayBridge(ctx, to, load, setup, "outage-without-"+to.name()) },
			func(n int) (sample, error) {
				return b.throughOutage(ctx, to, load, setup, fmt.Sprintf("outage-%s-%d", to.name(), n))
			},
			func(without, with sample) {
				b.say("outage, %s: peak %.0f MB without, %.0f MB with", to.name(), without.peakMB(), with.peakMB())
			})
		if err != nil {
			return err
		}
		b.report.add(
			"outage",
			"The replay while the broker is away, until it is back and holds all / without an outage. What does not fit the queue "+
				"(8192 events, 32 MiB) is spilled.",
			cell{"broker", to.name()},
			p.compared("peak memory MB", "%.0f", sample.peakMB),
			p.compared("CPU us/event", "%.1f", sample.cpuPerEvent),
		)
		if _, _, ratio := p.each(sample.cpuPerEvent); b.scale == 1 {
			b.report.measure("outage/cpu/"+to.name(), ratio)
		}
		return nil
	})
}

func (b *bench) throughOutage(
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
	finish := b.profile(ctx, r, run, 2*profileLength)
	s, err = measure(ctx, r.program, to, setup.sinks, load.Events, func(ctx context.Context) error {
		err := errors.Join(to.down(), server.release(ctx))
		if err == nil {
			err = untilSlow(ctx, func() error { return r.received(ctx, load.Events) })
		}
		return errors.Join(err, to.up(ctx))
	})
	if err == nil {
		err = pause(ctx, checkpointed)
	}
	if err != nil {
		return s, err
	}
	return s, errors.Join(s.finish(r.program), finish())
}

// received checks that the bridge has received the given number of events from its informers.
func (r *bridge) received(ctx context.Context, events int) error {
	m, err := r.metrics(ctx)
	if got := m.sum("deltabridge_events_received_total"); err == nil && got < float64(events) {
		err = fmt.Errorf("the bridge has received %.0f of %d events", got, events)
	}
	return err
}
