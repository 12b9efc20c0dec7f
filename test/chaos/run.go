package chaos

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// run plays one scenario.
type run struct {
	w     *world
	s     Scenario
	name  string
	names map[string]string // of the namespaces, by letter
	dir   string
	state string // where the bridge keeps it; a file system of its own if the disk is filled

	api        *sinktest.Proxy // to the API server
	kubeconfig string
	dests      map[string]*dest
	slots      int    // of the Kafka broker that are in use
	config     Config // wanted
	used       Config // of the last start that succeeded
	bridge     *bridge
	writers    sync.WaitGroup
	background sync.WaitGroup // resyncs
	timeline   Timeline
	violations []Violation // that are none of a sink
	log        []string
	began      time.Time
	stopped    bool // it failed, so that the rest would take long and say nothing
}

// play runs a scenario and gives the violations, and what happened when. An error is not the bridge's.
func (w *world) play(ctx context.Context, s Scenario) (violations []Violation, log []string, err error) {
	r := &run{w: w, s: s, config: s.Config.Clone(), dests: map[string]*dest{}, began: time.Now()}
	r.used = r.config
	if r.name, r.names, err = w.begin(ctx); err != nil {
		return nil, nil, err
	}
	defer w.end(ctx, r.names)
	if r.dir, err = os.MkdirTemp("", "chaos-"+r.name+"-"); err != nil {
		return nil, nil, err
	}
	defer func() { r.clear(len(violations) > 0) }()
	if err = r.prepare(ctx); err != nil {
		return nil, nil, err
	}
	for _, step := range s.Steps {
		if r.stopped || ctx.Err() != nil {
			break
		}
		r.note("%s", strings.SplitN(step.String(), "\n", 2)[0])
		if err = r.do(ctx, step); err != nil {
			return nil, r.log, fmt.Errorf("%s: %w", step.Action, err)
		}
	}
	if violations, err = r.finish(ctx); err != nil {
		return nil, r.log, err
	}
	return violations, r.log, nil
}

func (r *run) note(format string, args ...any) {
	r.log = append(r.log, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (r *run) violation(format string, args ...any) {
	r.violations = append(r.violations, Violation{Ended, "bridge", fmt.Sprintf(format, args...)})
	r.note("VIOLATION: "+format, args...)
}

// finish lets everything arrive, ends the bridge and judges.
func (r *run) finish(ctx context.Context) ([]Violation, error) {
	if !r.stopped {
		r.note("the end")
		if err := r.settle(ctx); err != nil {
			return nil, err
		}
	} else {
		r.heal()
		r.writers.Wait()
	}
	r.end(Term)
	input, _, err := r.input(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for name, events := range input.Events {
		counts[name] = len(events)
		r.dump(name, events)
	}
	r.note("%d revisions, events: %v", len(input.History.Revs), counts)
	return append(r.violations, Judge(input)...), nil
}

// dump writes the events that a destination holds to a file, which is kept if the run failed.
func (r *run) dump(dest string, events []*Event) {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s  id %s, made %s\n", e, e.ID, e.Made.Format("05.000"))
	}
	if err := os.WriteFile(filepath.Join(r.dir, "events-"+dest+".txt"), []byte(b.String()), 0o600); err != nil {
		r.w.t.Logf("cannot keep the events of %s: %v", dest, err)
	}
}

// input reads everything that the judge needs, and the revision up to which it is complete.
func (r *run) input(ctx context.Context) (Input, int64, error) {
	history, now, err := r.w.history(ctx, r.names)
	if err != nil {
		return Input{}, 0, err
	}
	in := Input{History: history, Timeline: r.timeline, Events: map[string][]*Event{}}
	if b := r.bridge; b != nil {
		in.Timeline.Processes[len(in.Timeline.Processes)-1].ReadyRev = b.ready.Load()
		in.Timeline.Relists = append(slices.Clone(in.Timeline.Relists), b.relists()...)
	}
	for name, d := range r.dests {
		if in.Events[name], err = r.read(ctx, d); err != nil {
			return Input{}, 0, err
		}
		control, err := r.read(ctx, d.control)
		if err != nil {
			return Input{}, 0, err
		}
		for _, e := range control {
			e.Apart = true
		}
		in.Events[name] = slices.Concat(in.Events[name], control)
	}
	return in, now, nil
}

const (
	// settleQuiet is for how long nothing may arrive before what is missing is a violation; settleLimit, how long it may
	// take at most.
	settleQuiet = time.Minute
	settleLimit = 5 * time.Minute
)

// settle ends all faults and waits until everything has arrived.
func (r *run) settle(ctx context.Context) error {
	r.writers.Wait()
	r.heal()
	if err := r.start(ctx); err != nil || r.stopped {
		return err
	}
	if err := r.resumeSinks(ctx); err != nil {
		return err
	}
	began, news, seen := time.Now(), time.Now(), -1
	for {
		in, now, err := r.input(ctx)
		if err != nil {
			return err
		}
		count := 0
		for _, events := range in.Events {
			for _, e := range events {
				if e.Operation != "progress" {
					count++
				}
			}
		}
		if count != seen {
			seen, news = count, time.Now()
		}
		waiting := 0
		for _, v := range Judge(in) {
			if v.incomplete() {
				waiting++
			}
		}
		switch {
		case waiting == 0 && r.bridge.ready.Load() > 0:
			r.timeline.Settled = append(r.timeline.Settled, Settled{time.Now(), now})
			r.note("settled at %d after %s", now, time.Since(began).Round(time.Millisecond))
			return nil
		case r.bridge.Ended():
			r.violation("the bridge ended by itself: %v\n%s", r.bridge.Wait(), r.bridge.tail(20))
			r.stopped = true
			return nil
		case time.Since(news) > r.w.quiet, time.Since(began) > settleLimit:
			r.note("not settled: %d are missing, ready: %d", waiting, r.bridge.ready.Load())
			if r.bridge.ready.Load() == 0 {
				r.violation("the bridge is not ready after %s\n%s", time.Since(began).Round(time.Second), r.bridge.tail(20))
			}
			r.stopped = true
			return nil
		}
		pause(ctx, 300*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// start starts the bridge, unless it runs. A configuration that it refuses because of what the one before has left is
// given up.
func (r *run) start(ctx context.Context) error {
	if r.bridge != nil && !r.bridge.Ended() {
		return nil
	}
	if r.bridge != nil {
		r.violation("the bridge ended by itself: %v\n%s", r.bridge.Wait(), r.bridge.tail(20))
		r.over("")
	}
	file := filepath.Join(r.dir, "bridge.yaml")
	if err := os.WriteFile(file, []byte(r.yaml(r.config)), 0o600); err != nil {
		return err
	}
	rev, err := r.w.cluster.Revision(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	b, err := startBridge(r.w, r.dir, file, len(r.timeline.Processes))
	if err != nil {
		return err
	}
	if b.addr == "" {
		return r.refused(ctx, b)
	}
	r.used, r.bridge = r.config, b
	r.timeline.Processes = append(
		r.timeline.Processes,
		Process{Config: r.config, Start: at, Up: time.Now(), StartRev: rev, EndRev: math.MaxInt64},
	)
	return nil
}

// refused looks at why the bridge did not start.
func (r *run) refused(ctx context.Context, b *bridge) error {
	text := b.tail(20)
	_ = os.Rename(b.log, b.log+fmt.Sprintf(".refused-%d", len(r.log)))
	switch {
	case r.fault(FillDisk, "") != nil:
		r.note("the bridge does not start on a full disk: %s", text)
		return nil
	case strings.Contains(text, "which is not in the configuration") && !sameConfig(r.config, r.used):
		r.note("the configuration is refused, the one before is taken: %s", text)
		r.config = r.used
		return r.start(ctx)
	}
	r.violation("the bridge does not start: %v\n%s\n%s", b.Wait(), text, r.yaml(r.config))
	r.stopped = true
	return nil
}

func sameConfig(a, b Config) bool { return a.String() == b.String() }

// end ends the bridge with Kill or Term.
func (r *run) end(how Action) {
	if r.bridge == nil {
		return
	}
	r.timeline.Processes[len(r.timeline.Processes)-1].Asked = time.Now()
	if r.bridge.Ended() {
		r.violation("the bridge ended by itself: %v\n%s", r.bridge.Wait(), r.bridge.tail(20))
	} else if how == Kill {
		_ = r.bridge.Kill()
	} else if err := r.bridge.term(); err != nil && r.fault(FillDisk, "") == nil {
		r.violation("SIGTERM: %v\n%s", err, r.bridge.tail(20))
	}
	r.over(how)
}

// over notes the end of the process.
func (r *run) over(how Action) {
	p := &r.timeline.Processes[len(r.timeline.Processes)-1]
	p.ReadyRev, p.How, p.End = r.bridge.ready.Load(), string(how), time.Now()
	if text := r.bridge.text(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		r.violation("a panic or a race:\n%s", r.bridge.tail(60))
	}
	r.timeline.Relists = append(r.timeline.Relists, r.bridge.relists()...)
	if p.Asked.IsZero() {
		p.Asked = p.End
	}
	p.EndRev = math.MaxInt64
	if rev, err := r.w.cluster.Revision(context.Background()); err == nil {
		p.EndRev = rev
	}
	r.bridge = nil
}

// fault gives the fault that goes on; nil if there is none.
func (r *run) fault(a Action, sink string) *Fault {
	for n := range r.timeline.Faults {
		if f := &r.timeline.Faults[n]; f.Action == a && f.Sink == sink && f.To.IsZero() {
			return f
		}
	}
	return nil
}

// begins and finishes note faults.
func (r *run) begins(ctx context.Context, a Action, sink string) error {
	rev, err := r.w.cluster.Revision(ctx)
	r.timeline.Faults = append(r.timeline.Faults, Fault{Action: a, Sink: sink, From: time.Now(), Rev: rev})
	return err
}

func (r *run) finishes(sink string, of ...Action) {
	for _, a := range of {
		if f := r.fault(a, sink); f != nil {
			f.To = time.Now()
		}
	}
}

// heal ends all faults.
func (r *run) heal() {
	for name := range maps.Keys(r.dests) {
		r.back(name)
	}
	r.api.Thaw()
	r.finishes("", HangAPI)
	r.freeDisk()
}
