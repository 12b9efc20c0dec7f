package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/bench/listwatch"
)

// snapshot: objects exist when the bridge starts. Time and CPU count from the start of the process.
func snapshot(ctx context.Context, b *bench) error {
	for _, name := range b.brokers {
		to, err := b.startBroker(ctx, name)
		if err != nil {
			return err
		}
		for _, load := range []listwatch.Options{{Objects: b.scaled(20_000), Size: smallObject}, {Objects: b.scaled(100_000), Size: largeObject}} {
			var p pairs
			if p, err = b.snapshotPairs(ctx, to, load); err != nil {
				break
			}
			b.report.snapshot(name, load, p, b.quick)
		}
		if err = errors.Join(err, to.close()); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) snapshotPairs(ctx context.Context, to broker, load listwatch.Options) (pairs, error) {
	warm := listwatch.Options{Objects: max(load.Objects/10, 1), Size: load.Size}
	if _, err := b.snapshotFloor(ctx, to, warm); err != nil {
		return pairs{}, err
	}
	return b.inTurn(
		func() (sample, error) { return b.snapshotFloor(ctx, to, load) },
		func(n int) (sample, error) {
			return b.snapshotBridge(ctx, to, load, fmt.Sprintf("snapshot-%d-%s-%d", load.Objects, to.name(), n))
		},
		func(floor, bridge sample) {
			b.say("snapshot of %d x %d bytes, %s: floor %.2f s, %.1f us CPU/object, %.0f MB; bridge %.2f s, %.1f us CPU/object, %.0f MB, live heap %.2f KB/object",
				load.Objects, load.Size, to.name(), floor.seconds, floor.cpuPerEvent(), megabytes(floor.peak),
				bridge.seconds, bridge.cpuPerEvent(), megabytes(bridge.peak), bridge.liveHeap/float64(load.Objects)/1e3)
		})
}

func (b *bench) snapshotFloor(ctx context.Context, to broker, load listwatch.Options) (s sample, err error) {
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
	if s.brokerCPU, err = to.cpu(); err != nil {
		return s, err
	}
	url := server.url + listwatch.Path + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	began := time.Now()
	floor, err := start(b.floorBinary, append(to.floorArgs(name), "-url", url, "-count", fmt.Sprint(load.Objects))...)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, floor.stop()) }()
	if err := s.await(ctx, floor, to, []string{name}, []int64{0}, load.Objects, began); err != nil {
		return s, err
	}
	err = floor.prints(ctx, func(output string) bool { return strings.Contains(output, "done\n") })
	return s, errors.Join(err, s.finish(floor))
}

func (b *bench) snapshotBridge(ctx context.Context, to broker, load listwatch.Options, run string) (s sample, err error) {
	const name = "bench"
	if err := to.create(ctx, name); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, to.remove(ctx, name)) }()
	server, err := b.startListWatch(ctx, load)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if s.brokerCPU, err = to.cpu(); err != nil {
		return s, err
	}
	began := time.Now()
	r, err := b.startBridge(ctx, bridgeSetup{kubeconfig: server.kubeconfig, sinks: []string{name}}, to)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	finish := b.profile(ctx, r, run, profileLength)
	if err := s.await(ctx, r.program, to, []string{name}, []int64{0}, load.Objects, began); err != nil {
		return s, err
	}
	if err := pause(ctx, checkpointed); err != nil {
		return s, err
	}
	if err := errors.Join(s.finish(r.program), finish(), r.delivered(ctx, load.Objects)); err != nil {
		return s, err
	}
	s.liveHeap, err = r.liveHeap(ctx)
	return s, err
}
