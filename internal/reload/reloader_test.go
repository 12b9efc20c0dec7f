package reload

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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
)

const oneSink = "sinks: [{name: a, stdout: {}}]\n"

// reloading returns a Reloader for a file with the text oneSink, and a function that changes the text.
func reloading(t *testing.T) (r *Reloader, write func(text string)) {
	t.Helper()
	return reloadingFrom(t, oneSink)
}

// reloadingFrom returns a Reloader for a file with a text, which accepts every valid configuration, and a function that
// changes the text.
func reloadingFrom(t *testing.T, text string) (r *Reloader, write func(text string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write = func(text string) { writeFile(t, path, text) }
	write(text)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err = New(Options{
		File: path, Config: cfg, Name: "self", Level: new(slog.LevelVar),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Build:  func(*config.Config) (engine.Options, error) { return engine.Options{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, write
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A configuration whose parts cannot be built is refused at the start, as at a reload.
func TestRefusedAtTheStart(t *testing.T) {
	refused := errors.New("no parts")
	build := func(*config.Config) (engine.Options, error) { return engine.Options{}, refused }
	if _, err := New(
		Options{Config: config.Default(), Level: new(slog.LevelVar), Build: build},
	); !errors.Is(
		err,
		refused,
	) {
		t.Error(err)
	}
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
			r.opts.Build = func(cfg *config.Config) (engine.Options, error) {
				if cfg.ShutdownTimeout == 13*time.Second {
					return engine.Options{}, errors.New("no parts")
				}
				return engine.Options{}, nil
			}
			before := r.InUse()
			write(c.text)
			answer, err := r.examine(t.Context(), false)
			if !strings.Contains(answer, c.want) || (err == nil) != (c.refused == "") {
				t.Fatalf("%q, %v", answer, err)
			}
			status := r.Status()
			switch {
			case c.refused == "" && status.Error != nil:
				t.Errorf("refused: %+v", status.Error)
			case c.refused != "" && (status.Error == nil || !strings.Contains(status.Error.Text, c.refused)):
				t.Errorf("refused: %+v, want %s", status.Error, c.refused)
			}
			refused := ""
			if c.refused != "" {
				refused, _ = hash([]byte(c.text)) // unless it is not YAML
			}
			if status.Refused != refused {
				t.Errorf("refused: the hash is %q, want %q", status.Refused, refused)
			}
			if changed := r.InUse() != before; changed != (c.want == "is loaded") || status.Hash != r.InUse().Hash {
				t.Errorf("another configuration is in use: %t, hash %s", changed, status.Hash)
			}
			expectSuccessful(t, r, c.refused == "")
			write(oneSink)
			if _, err := r.examine(t.Context(), false); err != nil || r.Status().Error != nil {
				t.Errorf("the earlier file: %v, %+v", err, r.Status().Error)
			}
		})
	}
}

func expectSuccessful(t *testing.T, r *Reloader, want bool) {
	t.Helper()
	value := 0
	if want {
		value = 1
	}
	const name = "deltabridge_config_last_reload_successful"
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != name ||
		int(families[0].GetMetric()[0].GetGauge().GetValue()) != value {
		t.Errorf("%v, want %d, %v", families, value, err)
	}
}

// While an engine runs, a configuration that was accepted is not in use before the engine is replaced. If the file is
// changed back meanwhile, nothing happens.
func TestReloadWithAnEngine(t *testing.T) {
	r, write := reloading(t)
	first := r.begin()
	write(oneSink + "shutdownTimeout: 1s")
	if _, err := r.examine(t.Context(), false); err != nil || r.InUse() != first {
		t.Fatalf("%v, in use at once: %t", err, r.InUse() != first)
	}
	next := r.next(t.Context())
	if next == nil || next.ShutdownTimeout != time.Second || next.parts == nil {
		t.Fatalf("next: %+v", next)
	}
	write(oneSink)
	if _, err := r.examine(t.Context(), false); err != nil || r.accepted() != nil {
		t.Errorf("%v, still accepted: %+v", err, r.accepted())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r.next(ended) != nil {
		t.Error("there is a next configuration")
	}
	write(oneSink + "shutdownTimeout: 2s")
	if _, err := r.examine(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if r.end(t.Context()); r.InUse().ShutdownTimeout != 2*time.Second {
		t.Error("what was accepted is not in use after the last engine")
	}
}

// A file that was refused is examined again, because the reason may be gone, but it is logged only once.
func TestReloadAgain(t *testing.T) {
	r, write := reloading(t)
	attempts := 0
	r.opts.Build = func(*config.Config) (engine.Options, error) {
		if attempts++; attempts < 3 {
			return engine.Options{}, errors.New("a file is missing")
		}
		return engine.Options{}, nil
	}
	write(oneSink + "shutdownTimeout: 1s")
	for range 2 {
		if _, err := r.examine(t.Context(), false); err == nil {
			t.Fatal("accepted")
		}
	}
	if answer, err := r.examine(t.Context(), false); err != nil || answer == "" || r.Status().Error != nil {
		t.Errorf("%q, %v, %+v", answer, err, r.Status().Error)
	}
	if answer, err := r.examine(t.Context(), false); answer != "" || err != nil || attempts != 3 {
		t.Errorf("examined without a reason: %q, %v", answer, err)
	}
	if err := os.Remove(r.opts.File); err != nil {
		t.Fatal(err)
	}
	if _, err := r.examine(t.Context(), false); err == nil || r.Status().Error == nil {
		t.Error("a file that is gone was accepted")
	}
	r.opts.File = ""
	if _, err := r.examine(t.Context(), true); err == nil {
		t.Error("without a file")
	}
}

// The file is read every few seconds, also when it is reached through symbolic links, as in a mounted ConfigMap.
func TestReloadPolls(t *testing.T) {
	r, _ := reloading(t)
	dir := filepath.Dir(r.opts.File)
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
	if err := errors.Join(os.Remove(r.opts.File), os.Symlink("..data/bridge.yaml", r.opts.File)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		hangups := make(chan os.Signal)
		go func() { r.Watch(ctx, hangups); close(ended) }()
		for n := 1; n <= 2; n++ {
			if n > 1 {
				version(n)
			}
			time.Sleep(pollInterval)
			synctest.Wait()
			if got := r.InUse().ShutdownTimeout; got != time.Duration(n)*time.Second {
				t.Errorf("version %d is not in use, but %s", n, got)
			}
		}
		version(3)
		hangups <- os.Interrupt
		synctest.Wait()
		if got := r.InUse().ShutdownTimeout; got != 3*time.Second {
			t.Errorf("after a signal: %s", got)
		}
		cancel()
		<-ended
	})
}
