package reload

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/replica"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// twoSinks is oneSink and another sink.
const twoSinks = "sinks: [{name: a, stdout: {}}, {name: b, nats: {url: \"nats://b:4222\", stream: {name: B}}}]\n"

// fakeEngine is an engine whose answers a test chooses. An engine with brokers and an API server is tested in test/e2e.
type fakeEngine struct {
	cfg                *config.Config
	options            engine.Options
	canEnd, failure    error
	stuck, undelivered map[string]int64
	kept               *engine.Kept
	replaced           chan func(sink string) bool
	keeps              string // the sinks that are kept
}

func (e *fakeEngine) CanEnd() error                       { return e.canEnd }
func (e *fakeEngine) Stuck() map[string]int64             { return e.stuck }
func (e *fakeEngine) Undelivered() map[string]int64       { return e.undelivered }
func (e *fakeEngine) Kept() *engine.Kept                  { return e.kept }
func (e *fakeEngine) Replace(keep func(sink string) bool) { e.replaced <- keep }

func (e *fakeEngine) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case keep := <-e.replaced:
		for _, s := range e.cfg.Sinks {
			if keep(s.Name) {
				e.keeps += s.Name
			}
		}
		e.kept = &engine.Kept{}
	}
	return e.failure
}

// engines runs engines.
type engines struct {
	*Reloader

	t       *testing.T
	write   func(string)
	edit    func(*fakeEngine) // changes an engine before it starts; may be nil
	change  error             // what prevents a change between two engines
	builds  int
	started []*fakeEngine
	ended   chan error
}

// runEngines runs engines with the configuration in a file with a text, in a bubble. The function ends them.
func runEngines(t *testing.T, text string, edit func(*fakeEngine)) (e *engines, end func() error) {
	t.Helper()
	e = &engines{t: t, edit: edit, ended: make(chan error, 1), builds: 1} // New has built the parts of the first engine
	e.Reloader, e.write = reloadingFrom(t, text)
	e.opts.Build = func(*config.Config) (engine.Options, error) {
		e.builds++
		return engine.Options{}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { e.ended <- e.RunEngines(ctx, e.start, func(*config.Config) error { return e.change }) }()
	synctest.Wait()
	return e, func() error { cancel(); return <-e.ended }
}

func (e *engines) start(current *Loaded, o engine.Options) (Engine, error) {
	started := &fakeEngine{cfg: current.Config, options: o, replaced: make(chan func(string) bool, 1)}
	if e.edit != nil {
		e.edit(started)
	}
	e.started = append(e.started, started)
	return started, nil
}

// load changes the file, and lets the Reloader examine it.
func (e *engines) load(text string) {
	e.t.Helper()
	e.write(text)
	if _, err := e.examine(e.t.Context(), false); err != nil {
		e.t.Fatal(err)
	}
	synctest.Wait()
}

// An engine is replaced if it can end and if no events wait for sinks that are removed. Otherwise, the file is refused,
// and the engine goes on, or the next one has the earlier configuration.
func TestRunEngines(t *testing.T) {
	waiting := map[string]int64{"b": 2}
	for name, c := range map[string]struct {
		edit     func(*fakeEngine)
		text     string
		refused  string
		engines  int
		builds   int // the parts of the last engine are those of the check, unless it has an earlier configuration
		kept     string
		lastHasB bool
	}{
		"a sink is removed": {nil, oneSink, "", 2, 2, "a", false},
		"a filter": {
			nil, strings.Replace(twoSinks, "name: b,", "name: b, filters: [{resources: [pods]}],", 1), "", 2, 2, "ab", true,
		},
		"a destination": {nil, strings.Replace(twoSinks, "b:4222", "c:4222", 1), "", 2, 2, "a", true},
		"the checkpoint cannot be written": {
			func(e *fakeEngine) { e.canEnd = errors.New("disk full") }, oneSink, "disk full", 1, 2, "", true,
		},
		"stuck events of a removed sink": {
			func(e *fakeEngine) { e.stuck = waiting }, oneSink, "2 events wait for the sink b", 1, 2, "", true,
		},
		"stuck events of a sink that stays": {
			func(e *fakeEngine) { e.stuck = waiting }, twoSinks + "shutdownTimeout: 1s", "", 2, 2, "ab", true,
		},
		"events are left of a removed sink": {
			func(e *fakeEngine) { e.undelivered = waiting }, oneSink, "2 events wait for the sink b", 2, 3, "a", true,
		},
		"events are left of a sink that stays": {
			func(e *fakeEngine) { e.undelivered = waiting }, twoSinks + "shutdownTimeout: 1s", "", 2, 2, "ab", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, end := runEngines(t, twoSinks, c.edit)
				e.load(c.text)
				problem := ""
				if p := e.Status().Error; p != nil {
					problem = p.Text
				}
				if !strings.HasPrefix(problem, c.refused) || (problem == "") != (c.refused == "") || e.accepted() != nil {
					t.Errorf("refused: %q, still accepted: %v", problem, e.accepted())
				}
				first, last := e.started[0], e.started[len(e.started)-1]
				if len(e.started) != c.engines || e.builds != c.builds || first.keeps != c.kept {
					t.Errorf("%d engines, built %d times, kept %q", len(e.started), e.builds, first.keeps)
				}
				if (last.cfg.Sink("b") != nil) != c.lastHasB || last.cfg != e.InUse().Config {
					t.Errorf("the last engine has %+v", last.cfg.Sinks)
				}
				if len(e.started) > 1 && last.options.Kept != first.kept {
					t.Error("the next engine does not continue what the first one has kept")
				}
				if err := end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An engine goes on after a refusal, and is replaced by the next configuration that is accepted.
func TestRunEnginesAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, end := runEngines(t, twoSinks, func(e *fakeEngine) { e.stuck = map[string]int64{"b": 1} })
		for n, c := range []struct {
			text    string
			engines int
			refused bool
		}{
			{oneSink, 1, true},
			{twoSinks, 1, false}, // is in use
			{oneSink, 1, true},
			{twoSinks + "shutdownTimeout: 1s", 2, false},
			{twoSinks, 3, false},
		} {
			if e.load(c.text); len(e.started) != c.engines || (e.Status().Error != nil) != c.refused {
				t.Errorf("step %d: %d engines, %+v", n, len(e.started), e.Status().Error)
			}
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// An engine never has the parts of an earlier one, also if it has the same configuration.
func TestRunEnginesBuildsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, end := runEngines(t, twoSinks, func(e *fakeEngine) { e.undelivered = map[string]int64{"b": 1} })
		for n, c := range []struct {
			text            string
			engines, builds int
		}{{twoSinks + "shutdownTimeout: 1s", 2, 2}, {oneSink, 3, 4}} {
			if e.load(c.text); len(e.started) != c.engines || e.builds != c.builds {
				t.Errorf("step %d: %d engines, built %d times", n, len(e.started), e.builds)
			}
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// RunEngines ends with the error of an engine, or of what happens between two engines. What was accepted is in use then.
func TestRunEnginesFails(t *testing.T) {
	failure := errors.New("failed")
	for name, fail := range map[string]func(*engines){
		"the engine": func(e *engines) { e.started[0].failure = failure },
		"the change": func(e *engines) { e.change = failure },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := runEngines(t, twoSinks, nil)
				fail(e)
				e.load(oneSink)
				if err := <-e.ended; !errors.Is(err, failure) || len(e.started) != 1 || e.InUse().Sink("b") != nil {
					t.Errorf("%v, %d engines, in use: %+v", err, len(e.started), e.InUse().Sinks)
				}
			})
		})
	}
}

// With a state log, the engine of the leader is not replaced while it waits for its peers. It stops waiting if the file
// has the configuration in use again.
func TestRunEnginesWaitsForPeers(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	writeFile(t, key, strings.Repeat("0", 64))
	base := "redactionKeyFile: " + key + "\nstate: {log: {nats: {url: \"nats://b:4222\"}}}\n" +
		"http: {peers: [\"p:8080\"]}\n" + oneSink
	changed := base + "shutdownTimeout: 1s"
	synctest.Test(t, func(t *testing.T) {
		e, end := runEngines(t, base, nil)
		var other atomic.Value // the hash of the configuration that the other replica has
		other.Store("")
		e.opts.Peers = func(context.Context, []string) []control.Answer {
			return []control.Answer{{Status: &control.Status{
				Replica: control.Replica{Name: "other"}, Configuration: control.Configuration{Hash: other.Load().(string)},
			}}}
		}
		for n, c := range []struct {
			text    string
			waits   bool
			engines int
		}{{changed, true, 1}, {base, false, 1}, {changed, true, 1}} {
			e.load(c.text)
			time.Sleep(10 * peersInterval)
			synctest.Wait()
			if waits := e.Status().Waits; (waits != "") != c.waits || len(e.started) != c.engines {
				t.Errorf("step %d: %q, %d engines", n, waits, len(e.started))
			}
		}
		next, waits := e.accepted().Hash, e.Status().Waits
		if _, err := e.examine(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * peersInterval)
		synctest.Wait()
		if again := e.Status().Waits; again != waits {
			t.Errorf("a file that has not changed again waits anew: %q, then %q", waits, again)
		}
		other.Store(next)
		time.Sleep(peersInterval)
		synctest.Wait()
		if waits := e.Status().Waits; waits != "" || len(e.started) != 2 || e.InUse().Hash != next {
			t.Errorf("%q, %d engines", waits, len(e.started))
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// An engine can be ended while a changed configuration waits for other replicas.
func TestRunEnginesEndsWhileItWaits(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	writeFile(t, key, strings.Repeat("0", 64))
	base := "redactionKeyFile: " + key + "\nstate: {log: {nats: {url: \"nats://b:4222\"}}}\n" + oneSink
	synctest.Test(t, func(t *testing.T) {
		e, end := runEngines(t, base, nil)
		e.load(base + "shutdownTimeout: 1s")
		if waits := e.Status().Waits; waits == "" {
			t.Error("waits for nothing")
		}
		if err := end(); err != nil || len(e.started) != 1 || e.InUse().ShutdownTimeout != time.Second {
			t.Errorf("%v, %d engines, in use: %+v", err, len(e.started), e.InUse().Config)
		}
	})
}

// copyWithEvents returns a copy of a state log that contains an event for a sink. This process leads.
func copyWithEvents(t *testing.T, sink string) *replica.Copy {
	t.Helper()
	c, err := replica.Open(replica.Options{
		Log: logtest.NewBroker(true).Open(), Claim: statelog.Claim{Cluster: "c", Started: time.Now()},
		Checkpoint: checkpoint.Options{Path: t.TempDir(), NoSync: true, Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := errors.Join(c.Lead(t.Context(), false), c.Store().BeginCluster("c")); err != nil {
		t.Fatal(err)
	}
	events, err := c.Store().Events(sink)
	if err != nil {
		t.Fatal(err)
	}
	batch := events.NewBatch()
	encode := func(dst []byte) ([]byte, error) { return append(dst, "event"...), nil }
	if _, err := batch.Add(1, "source", "1", math.MaxInt64, encode); err != nil {
		t.Fatal(err)
	}
	if err := events.Append(batch, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// A process without an engine refuses a configuration if events in its copy of the state log wait for a sink that is
// removed: as the leader, it could not start. An engine that runs knows itself which events wait. The log names the
// configuration in use.
func TestFollow(t *testing.T) {
	r, write := reloading(t)
	c := copyWithEvents(t, "b")
	r.Follow(c)
	write(oneSink + "shutdownTimeout: 1s")
	want := "the checkpoint contains events for sinks that are not in the configuration: b; restore these sinks with " +
		"their old names until their events are delivered"
	if _, err := r.examine(t.Context(), false); err == nil || err.Error() != want {
		t.Error(err)
	}
	write(twoSinks)
	if _, err := r.examine(t.Context(), false); err != nil || r.Status().Error != nil {
		t.Errorf("%v, %+v", err, r.Status().Error)
	}
	if in := c.Store().Copy().Point().Claim.Configuration; in != r.InUse().Hash || in == "" {
		t.Errorf("the log names %q, in use is %q", in, r.InUse().Hash)
	}
	r.begin()
	write(oneSink)
	if _, err := r.examine(t.Context(), false); err != nil || r.accepted() == nil {
		t.Errorf("with an engine: %v", err)
	}
}

// A sink is not removed while events wait for it.
func TestRemovedWithEvents(t *testing.T) {
	cfg := &config.Config{Sinks: []config.Sink{{Name: "stays"}}}
	for want, waiting := range map[string]map[string]int64{
		"": {"stays": 3, "empty": 0},
		"2 events wait for the sink gone, which is not in the configuration: restore the sink with its old name until " +
			"they are delivered": {"gone": 2, "stays": 1},
	} {
		got := ""
		if err := removedWithEvents(waiting, cfg); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
