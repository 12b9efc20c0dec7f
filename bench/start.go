package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/bench/listwatch"
)

// coldStart starts a bridge that has ended in an orderly way, with the checkpoint of 100,000 objects, and measures
// until it is ready. Nothing has changed meanwhile.
func coldStart(ctx context.Context, b *bench) error {
	return b.onFirstBroker(ctx, func(to broker) error {
		load := listwatch.Options{Objects: b.scaled(100_000), Size: smallObject}
		r, _, end, err := b.replaying(ctx, to, load, bridgeSetup{sinks: []string{"bench"}})
		if err != nil {
			return err
		}
		runs, err := repeat(b.runs, func(n int) (sample, error) { return b.startAgain(ctx, r, fmt.Sprintf("start-%d", n)) })
		if err = errors.Join(err, end()); err == nil {
			b.report.start(runs, load, b.scale != 1)
		}
		return err
	})
}

// startAgain stops the bridge, and measures its next process.
func (b *bench) startAgain(ctx context.Context, r *bridge, run string) (s sample, err error) {
	if err := r.stop(); err != nil {
		return s, err
	}
	began := time.Now()
	again, err := b.runBridge(ctx, r.dir)
	if err != nil {
		return s, err
	}
	*r = *again // the caller stops it
	finish := b.profile(ctx, r, run, profileLength)
	if err := r.ready(ctx); err != nil {
		return s, err
	}
	s.seconds = time.Since(began).Seconds()
	if s.cpu, err = r.cpu(); err != nil {
		return s, err
	}
	if s.resident, s.peak, err = memoryOf(r.Pid); err != nil {
		return s, err
	}
	b.say("start: ready after %.2f s, %.2f s CPU, peak %.0f MB", s.seconds, s.cpu.Seconds(), megabytes(s.peak))
	return s, finish()
}

func (r *report) start(runs []sample, load listwatch.Options, scaled bool) {
	r.add(
		"start",
		"From the start of the process until it is ready, with the checkpoint of ConfigMaps of 2.6 KB, none of which has "+
			"changed.",
		cell{"objects", fmt.Sprint(load.Objects)},
		figure("seconds", "%.2f", runs, sample.wallSeconds),
		figure("CPU seconds", "%.2f", runs, sample.cpuSeconds),
		figure("peak memory MB", "%.0f", runs, sample.peakMB),
	)
	if !scaled { // the bound is for the full number of objects
		r.measure("start/seconds", of(runs, sample.wallSeconds))
	}
}
