package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/bench/listwatch"
)

// source is the server from which the objects of a snapshot are read.
type source struct {
	what       string
	objects    int
	kubeconfig string
	watch      string   // entries of `watch` for the bridge; if empty, ConfigMaps
	floorArgs  []string // arguments with which the floor watches the objects
}

// watchList has the parameters of a watch that begins with the existing objects.
const watchList = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

// snapshot starts the bridge when all objects exist. Time and CPU are measured from the start of the process.
func snapshot(ctx context.Context, b *bench) error {
	api, err := b.startAPIServer(ctx)
	if err != nil {
		return err
	}
	return errors.Join(b.snapshots(ctx, api), api.Stop())
}

func (b *bench) snapshots(ctx context.Context, api *apiServer) error {
	objects := b.scaled(20_000)
	b.say("snapshot: creating %d objects", objects)
	if err := api.createConfigMaps(ctx, objects); err != nil {
		return err
	}
	behind := source{
		what:       "API server",
		objects:    objects,
		kubeconfig: api.Kubeconfig(),
		watch:      api.watch(),
		floorArgs:  b.floorTo(api, watchList),
	}
	return b.onEachBroker(ctx, func(to broker) error {
		for _, load := range []listwatch.Options{
			{Objects: objects, Size: smallObject}, {Objects: b.scaled(100_000), Size: largeObject},
		} {
			if err := b.snapshotOf(ctx, to, load); err != nil {
				return err
			}
		}
		return b.snapshotFrom(ctx, to, behind, smallObject)
	})
}

// snapshotOf reads the objects from the simulated API server.
func (b *bench) snapshotOf(ctx context.Context, to broker, load listwatch.Options) error {
	server, err := b.startListWatch(ctx, load)
	if err != nil {
		return err
	}
	from := source{
		what: "nothing behind", objects: load.Objects, kubeconfig: server.kubeconfig,
		floorArgs: server.floorTo(b, watchList),
	}
	return errors.Join(b.snapshotFrom(ctx, to, from, load.Size), server.stop())
}

// snapshotFrom runs the pairs and adds their results to the report.
func (b *bench) snapshotFrom(ctx context.Context, to broker, from source, size int) error {
	if _, err := b.snapshotFloor(ctx, to, from); err != nil { // the first run on a cold broker is not representative
		return err
	}
	p, err := b.inTurn(
		func() (sample, error) { return b.snapshotFloor(ctx, to, from) },
		func(n int) (sample, error) {
			return b.snapshotBridge(
				ctx,
				to,
				from,
				fmt.Sprintf("snapshot-%d-%s-%s-%d", from.objects, strings.Fields(from.what)[0], to.name(), n),
			)
		},
		func(floor, bridge sample) {
			b.say(
				"snapshot of %d x %d bytes (%s), %s: floor %.2f s, %.1f us CPU/object, %.0f MB; bridge %.2f s, %.1f us CPU/object, %.0f MB, live heap %.2f KB/object",
				from.objects,
				size,
				from.what,
				to.name(),
				floor.seconds,
				floor.cpuPerEvent(),
				megabytes(floor.peak),
				bridge.seconds,
				bridge.cpuPerEvent(),
				megabytes(bridge.peak),
				bridge.liveHeap/float64(from.objects)/1e3,
			)
		})
	if err == nil {
		b.report.snapshot(to.name(), from, size, p, b.scale != 1)
	}
	return err
}

func (b *bench) snapshotFloor(ctx context.Context, to broker, from source) (s sample, err error) {
	const name = "floor"
	if err := to.create(ctx, name); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, to.remove(ctx, name)) }()
	if s.brokerCPU, err = to.cpu(); err != nil {
		return s, err
	}
	began := time.Now()
	floor, err := start(
		b.floorBinary,
		slices.Concat(to.floorArgs(name), from.floorArgs, []string{"-count", fmt.Sprint(from.objects)})...)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, floor.stop()) }()
	if err := s.await(ctx, floor, to, []string{name}, []int64{0}, from.objects, began); err != nil {
		return s, err
	}
	err = floor.prints(ctx, func(output string) bool { return strings.Contains(output, "done\n") })
	return s, errors.Join(err, s.finish(floor))
}

func (b *bench) snapshotBridge(ctx context.Context, to broker, from source, run string) (s sample, err error) {
	const name = "bench"
	if err := to.create(ctx, name); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, to.remove(ctx, name)) }()
	if s.brokerCPU, err = to.cpu(); err != nil {
		return s, err
	}
	began := time.Now()
	r, err := b.startBridge(ctx, bridgeSetup{kubeconfig: from.kubeconfig, watch: from.watch, sinks: []string{name}}, to)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	finish := b.profile(ctx, r, run, profileLength)
	if err := s.await(ctx, r.program, to, []string{name}, []int64{0}, from.objects, began); err != nil {
		return s, err
	}
	if err := pause(ctx, checkpointed); err != nil {
		return s, err
	}
	if err := errors.Join(s.finish(r.program), finish(), r.delivered(ctx, from.objects)); err != nil {
		return s, err
	}
	s.liveHeap, err = r.liveHeap(ctx)
	return s, err
}
