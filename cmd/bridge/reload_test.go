package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
)

// newTestReloader returns a reloader that accepts every valid configuration.
func newTestReloader(t *testing.T, path string, cfg *config.Config) *reloader {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r := newReloader(path, &loaded{cfg: cfg, hash: "first"}, new(slog.LevelVar), log)
	r.build = func(*config.Config) (engine.Options, error) { return engine.Options{}, nil }
	return r
}

const oneSink = "sinks: [{name: a, stdout: {}}]\n"

// reloading returns a reloader for a file with the text oneSink, and a function that changes the text.
func reloading(t *testing.T) (r *reloader, write func(text string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write = func(text string) { writeFile(t, path, text) }
	write(oneSink)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return newTestReloader(t, path, cfg), write
}

// A valid file is used, and everything else changes nothing and is reported.
func TestReload(t *testing.T) {
	for name, c := range map[string]struct {
		text, want, refused string
	}{
		"the same":          {"# comment\n" + oneSink, "the configuration has not changed", ""},
		"a filter":          {"sinks: [{name: a, stdout: {}, filters: [{resources: [pods]}]}]", "is loaded", ""},
		"the log level":     {oneSink + "log: {level: debug}", "is loaded", ""},
		"a mistake":         {"sinks: [{name: a, stdout: {}, filter: []}]", "", "bridge.yaml:1"},
		"no YAML":           {"sinks: [", "", "bridge.yaml:1"},
		"the state path":    {oneSink + "state: {path: b}", "", "state.path: cannot change while the bridge runs"},
		"the cluster":       {oneSink + "cluster: b", "", "cluster: cannot change"},
		"the HTTP port":     {oneSink + "http: {listen: \":1\"}", "", "http.listen: cannot change"},
		"the election":      {oneSink + "election: {leaseDuration: 20s}", "", "election: cannot change"},
		"the log format":    {oneSink + "log: {format: json}", "", "log.format: cannot change"},
		"parts do not work": {oneSink + "shutdownTimeout: 13s", "", "no parts"},
	} {
		t.Run(name, func(t *testing.T) {
			r, write := reloading(t)
			r.build = func(cfg *config.Config) (engine.Options, error) {
				if cfg.ShutdownTimeout == 13*time.Second {
					return engine.Options{}, errors.New("no parts")
				}
				return engine.Options{}, nil
			}
			before := r.inUse()
			write(c.text)
			answer, err := r.examine(false)
			if !strings.Contains(answer, c.want) || (err == nil) != (c.refused == "") {
				t.Fatalf("%q, %v", answer, err)
			}
			status := r.status()
			switch {
			case c.refused == "" && status.Error != nil:
				t.Errorf("refused: %+v", status.Error)
			case c.refused != "" && (status.Error == nil || !strings.Contains(status.Error.Text, c.refused)):
				t.Errorf("refused: %+v, want %s", status.Error, c.refused)
			}
			if changed := r.inUse() != before; changed != (c.want == "is loaded") || changed == (status.Hash == "first") {
				t.Errorf("another configuration is in use: %t, hash %s", changed, status.Hash)
			}
			expectSuccessful(t, r, c.refused == "")
			write(oneSink)
			if _, err := r.examine(false); err != nil || r.status().Error != nil {
				t.Errorf("the earlier file: %v, %+v", err, r.status().Error)
			}
		})
	}
}

func expectSuccessful(t *testing.T, r *reloader, want bool) {
	t.Helper()
	value := 0
	if want {
		value = 1
	}
	const name = "deltabridge_config_last_reload_successful"
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && int(f.GetMetric()[0].GetGauge().GetValue()) != value {
			t.Errorf("%s: %v, want %d", name, f.GetMetric(), value)
		}
	}
	if n, err := testutil.GatherAndCount(registry, name, "deltabridge_config_info",
		"deltabridge_config_last_reload_success_timestamp_seconds"); err != nil || n != 3 {
		t.Errorf("%d metrics, %v", n, err)
	}
}

// While an engine runs, a configuration that was accepted is not in use before the engine is replaced. If the file is
// changed back meanwhile, nothing happens.
func TestReloadWithAnEngine(t *testing.T) {
	r, write := reloading(t)
	first := r.begin()
	write(oneSink + "shutdownTimeout: 1s")
	if _, err := r.examine(false); err != nil || r.inUse() != first {
		t.Fatalf("%v, in use at once: %t", err, r.inUse() != first)
	}
	next := r.next(t.Context())
	if next == nil || next.cfg.ShutdownTimeout != time.Second || next.options == nil {
		t.Fatalf("next: %+v", next)
	}
	write(oneSink)
	if _, err := r.examine(false); err != nil || r.accepted() != nil {
		t.Errorf("%v, still accepted: %+v", err, r.accepted())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r.next(ended) != nil {
		t.Error("there is a next configuration")
	}
	write(oneSink + "shutdownTimeout: 2s")
	if _, err := r.examine(false); err != nil {
		t.Fatal(err)
	}
	if r.end(); r.inUse().cfg.ShutdownTimeout != 2*time.Second {
		t.Error("what was accepted is not in use after the last engine")
	}
}

// A file that was refused is examined again, because the reason may be gone, but it is logged only once.
func TestReloadAgain(t *testing.T) {
	r, write := reloading(t)
	attempts := 0
	r.build = func(*config.Config) (engine.Options, error) {
		if attempts++; attempts < 3 {
			return engine.Options{}, errors.New("a file is missing")
		}
		return engine.Options{}, nil
	}
	write(oneSink + "shutdownTimeout: 1s")
	for range 2 {
		if _, err := r.examine(false); err == nil {
			t.Fatal("accepted")
		}
	}
	if answer, err := r.examine(false); err != nil || answer == "" || r.status().Error != nil {
		t.Errorf("%q, %v, %+v", answer, err, r.status().Error)
	}
	if answer, err := r.examine(false); answer != "" || err != nil || attempts != 3 {
		t.Errorf("examined without a reason: %q, %v", answer, err)
	}
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.examine(false); err == nil || r.status().Error == nil {
		t.Error("a file that is gone was accepted")
	}
	r.path = ""
	if _, err := r.examine(true); err == nil {
		t.Error("without a file")
	}
}

// The file is read every few seconds, also when it is reached through symbolic links, as in a mounted ConfigMap.
func TestReloadPolls(t *testing.T) {
	r, _ := reloading(t)
	dir := filepath.Dir(r.path)
	version := func(n int) { // as the kubelet does it
		data := fmt.Sprintf("..%d", n)
		if err := os.Mkdir(filepath.Join(dir, data), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, data, "bridge.yaml"), oneSink+fmt.Sprintf("shutdownTimeout: %ds", n))
		err := os.Symlink(data, filepath.Join(dir, "..new"))
		if err = errors.Join(err, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	version(1)
	if err := errors.Join(os.Remove(r.path), os.Symlink("..data/bridge.yaml", r.path)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		hangups := make(chan os.Signal)
		go func() { r.Run(ctx, hangups); close(ended) }()
		for n := 1; n <= 2; n++ {
			if n > 1 {
				version(n)
			}
			time.Sleep(pollInterval)
			synctest.Wait()
			if got := r.inUse().cfg.ShutdownTimeout; got != time.Duration(n)*time.Second {
				t.Errorf("version %d is not in use, but %s", n, got)
			}
		}
		version(3)
		hangups <- os.Interrupt
		synctest.Wait()
		if got := r.inUse().cfg.ShutdownTimeout; got != 3*time.Second {
			t.Errorf("after a signal: %s", got)
		}
		cancel()
		<-ended
	})
}

// The leader uses a changed configuration when all other replicas that answer have it, or after some time.
func TestLeaderIsLast(t *testing.T) {
	replica := func(name, hash string) control.Answer {
		return control.Answer{Status: &control.Status{
			Replica: control.Replica{Name: name}, Configuration: control.Configuration{Hash: hash},
		}}
	}
	const until = 20 * time.Second
	for name, c := range map[string]struct {
		others []control.Answer // until the time is over
		peers  []string
		took   time.Duration
	}{
		"alone":       {[]control.Answer{replica("self", "old"), {Error: "refused"}}, []string{"p"}, 0},
		"has it":      {[]control.Answer{replica("self", "old"), replica("b", "new")}, []string{"p"}, 0},
		"has it late": {[]control.Answer{replica("b", "old"), replica("c", "new")}, []string{"p"}, until},
		"no peers":    {nil, nil, peersPatience + peersInterval},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				b := &bridge{
					reload: newTestReloader(t, "", config.Default()), server: &frontend{name: "self"},
					log: slog.New(slog.DiscardHandler),
				}
				b.readPeers = func(context.Context, []string) []control.Answer {
					if time.Since(began) >= until {
						return nil
					}
					return c.others
				}
				cfg := config.Default()
				cfg.HTTP.Peers = c.peers
				next := &loaded{cfg: cfg, hash: "new"}
				b.reload.begin()
				b.reload.accept(next)
				time.AfterFunc(time.Second/2, func() {
					if waits := b.reload.status().Waits; (waits != "") != (c.took > 0) {
						t.Errorf("waits for %q", waits)
					}
				})
				if !b.awaitPeers(t.Context(), next) {
					t.Error("the configuration is not to be used")
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				time.Sleep(time.Second)
				b.reload.refuse(errors.New("x"))
				if b.awaitPeers(t.Context(), next) {
					t.Error("a configuration that was refused is to be used")
				}
			})
		})
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

// reload waits for all replicas that answer, and fails if one of them refuses its file.
func TestNotInUse(t *testing.T) {
	replica := func(c control.Configuration) control.Answer {
		return control.Answer{Status: &control.Status{Replica: control.Replica{Name: "r"}, Configuration: c}}
	}
	uses, silent := replica(control.Configuration{Hash: "new"}), control.Answer{Address: "a:1", Error: "refused"}
	for name, c := range map[string]struct {
		answers []control.Answer
		want    string
	}{
		"in use":  {[]control.Answer{uses, uses, silent}, ""},
		"another": {[]control.Answer{uses, replica(control.Configuration{Hash: "old"})}, "r uses another configuration"},
		"waits":   {[]control.Answer{replica(control.Configuration{Waits: "waits for b"})}, "r waits for b"},
		"silent":  {[]control.Answer{silent}, "a:1: refused; no bridge answers"},
		"refused": {
			[]control.Answer{uses, replica(control.Configuration{Hash: "new", Error: &control.Problem{Text: "bad"}})},
			"r refuses its configuration file: bad",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := awaitConfiguration(ctx, func() []control.Answer { return c.answers }, "new")
				if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
			})
		})
	}
}
