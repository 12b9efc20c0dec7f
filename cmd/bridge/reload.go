package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/replica"
)

// pollInterval is the interval at which the configuration file is read. Files that Kubernetes mounts are symbolic links
// to other files after a change, so notifications about a file would not be enough.
const pollInterval = 5 * time.Second

// builtIn is the name of the configuration without a file.
const builtIn = "built-in"

// loaded is a configuration that was read and checked.
type loaded struct {
	cfg  *config.Config
	hash string // see configurationHash
	// options contains the parts that the check has built, for one engine. It is nil after that.
	options *engine.Options
}

// reloader reads the configuration file again while the bridge runs, checks it, and keeps what is accepted until it is
// used. An engine that runs must take a changed configuration (next). Without an engine, the configuration is in use
// when it is accepted. It is safe for concurrent use.
type reloader struct {
	path string // empty if the bridge runs without a file
	log  *slog.Logger
	// build builds the parts of an engine, which is the last check of a configuration.
	build func(*config.Config) (engine.Options, error)
	// level is the level of the log, which follows the configuration.
	level *slog.LevelVar

	examining sync.Mutex // held while the file is examined

	mu      sync.Mutex // guards the following fields
	current *loaded
	since   time.Time // since when it is in use
	seen    [sha256.Size]byte
	copy    *replica.Copy    // nil without a state log
	problem *control.Problem // why the file is not in use; nil if it is
	waits   string           // what the accepted configuration waits for
	running bool             // an engine runs
	pending *loaded          // what was accepted, and is not in use yet
	changed chan struct{}    // has an element after pending was set
}

func newReloader(path string, first *loaded, level *slog.LevelVar, log *slog.Logger) *reloader {
	level.Set(first.cfg.Log.Level.Level())
	return &reloader{
		path: path, log: log, level: level, current: first, since: time.Now(), changed: make(chan struct{}, 1),
	}
}

// follow makes a copy of the state log name the configuration in use. From now on, a configuration is refused if events
// in the copy wait for sinks that it does not have, unless an engine runs.
func (r *reloader) follow(c *replica.Copy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copy = c
}

// Run examines the file at intervals, and whenever it receives a signal, until ctx ends.
func (r *reloader) Run(ctx context.Context, hangups <-chan os.Signal) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, _ = r.examine(false) // an error is logged
		case <-hangups:
			if answer, err := r.examine(true); err == nil {
				r.log.Info("SIGHUP received", "answer", answer)
			}
		}
	}
}

// examine reads the file and checks it, if it has changed, if it was rejected before, or if always is true. The answer
// says what follows.
func (r *reloader) examine(always bool) (answer string, err error) {
	if r.path == "" {
		return "", errors.New("the bridge runs without a configuration file")
	}
	r.examining.Lock()
	defer r.examining.Unlock()
	data, err := os.ReadFile(r.path)
	sum := sha256.Sum256(data)
	r.mu.Lock()
	current, same := r.current, err == nil && sum == r.seen && r.problem == nil
	r.mu.Unlock()
	if same && !always {
		return "", nil
	}
	next, err := r.check(current, data, err)
	r.mu.Lock()
	r.seen = sum
	r.mu.Unlock()
	switch {
	case err != nil:
		r.refuse(err)
		return "", err
	case config.Same(next.cfg, current.cfg):
		r.keep()
		return "the configuration has not changed", nil
	}
	r.accept(next)
	return "the changed configuration is valid and is loaded", nil
}

// check returns the configuration in a file with the content data. failed is the error of reading the file.
func (r *reloader) check(current *loaded, data []byte, failed error) (*loaded, error) {
	if failed != nil {
		return nil, fmt.Errorf("configuration file: %w", failed)
	}
	cfg, err := config.ParseChanged(r.path, data, current.cfg)
	if err != nil {
		return nil, err
	}
	next := &loaded{cfg: cfg}
	if next.hash, err = hashConfiguration(data); err != nil || config.Same(cfg, current.cfg) {
		return next, err
	}
	options, err := r.build(cfg)
	if err != nil {
		return nil, err
	}
	next.options = &options
	r.mu.Lock()
	c, running := r.copy, r.running
	r.mu.Unlock()
	if c != nil && !running {
		err = orphanedEventsIn(c, cfg)
	}
	return next, err
}

// refuse records why the file is not used. The configuration in use stays.
func (r *reloader) refuse(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	r.mu.Lock()
	isNews := r.problem == nil || r.problem.Text != text
	if isNews {
		r.problem = &control.Problem{
			Text: text, Since: time.Now(), Remedy: "correct the configuration; the bridge continues with the earlier one",
		}
	}
	r.pending, r.waits = nil, ""
	r.mu.Unlock()
	if isNews {
		r.log.Error("changed configuration refused, continuing with the earlier one", "file", r.path, "err", text)
	}
}

// keep records that the file has the configuration in use.
func (r *reloader) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem != nil || r.pending != nil {
		r.log.Info("the configuration file has the configuration in use again", "file", r.path)
	}
	r.problem, r.pending, r.waits = nil, nil, ""
}

// accept uses a configuration, or leaves it to the engine that runs.
func (r *reloader) accept(next *loaded) {
	r.mu.Lock()
	if r.pending == nil || !config.Same(r.pending.cfg, next.cfg) { // otherwise its wait goes on
		r.pending = next
	}
	if r.running {
		r.mu.Unlock()
		select {
		case r.changed <- struct{}{}:
		default:
		}
		return
	}
	r.mu.Unlock()
	r.use(next)
}

// use records that a configuration is in use.
func (r *reloader) use(next *loaded) {
	r.mu.Lock()
	r.current, r.since, r.problem, r.waits = next, time.Now(), nil, ""
	if r.pending == next {
		r.pending = nil
	}
	c := r.copy
	r.mu.Unlock()
	r.level.Set(next.cfg.Log.Level.Level())
	r.log.Info("changed configuration is in use", "file", r.path, "hash", next.hash, "sinks", len(next.cfg.Sinks))
	if c == nil {
		return
	}
	if err := c.SetConfiguration(context.Background(), next.hash); err != nil {
		r.log.Warn("state log does not name the changed configuration yet, trying again", "err", err)
	}
}

// begin returns the configuration for an engine. From now on, the engine must take changed configurations.
func (r *reloader) begin() *loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = true
	return r.current
}

// end is called when no engine runs any more. What was accepted meanwhile is in use now.
func (r *reloader) end() {
	r.mu.Lock()
	r.running = false
	next := r.pending
	r.mu.Unlock()
	if next != nil {
		r.use(next)
	}
}

// next returns an accepted configuration that is not in use, as soon as there is one. It returns nil when ctx ends.
func (r *reloader) next(ctx context.Context) *loaded {
	for {
		if pending := r.accepted(); pending != nil {
			return pending
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
	}
}

// accepted returns what was accepted and is not in use, or nil.
func (r *reloader) accepted() *loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending
}

// setWaits records what the accepted configuration waits for.
func (r *reloader) setWaits(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = text
}

// inUse returns the configuration in use.
func (r *reloader) inUse() *loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// status returns the status of the configuration.
func (r *reloader) status() control.Configuration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return control.Configuration{
		File: cmp.Or(r.path, builtIn), Hash: r.current.hash, Loaded: r.since, Error: r.problem, Waits: r.waits,
	}
}

// ServeHTTP reads the file now. The answer says whether it is accepted, which is before it is in use.
func (r *reloader) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	answer, err := r.examine(true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	_, _ = io.WriteString(w, answer+"\n") // fails if the client has disconnected
}

// Describe implements prometheus.Collector. The label hash differs from configuration to configuration.
func (r *reloader) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *reloader) Collect(ch chan<- prometheus.Metric) {
	c := r.status()
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(metrics.Namespace, "", name), help, nil, labels)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	successful := 1.
	if c.Error != nil {
		successful = 0
	}
	gauge("config_last_reload_successful", "1 if the configuration file, as it is now, is in use or is about to be; "+
		"0 if it was refused, so that the bridge continues with the earlier configuration.", successful, nil)
	gauge("config_last_reload_success_timestamp_seconds", "Since when the configuration is in use.",
		float64(c.Loaded.UnixMilli())/1000, nil)
	gauge("config_info", "Always 1; the label is the hash of the configuration in use, without the keys in which "+
		"replicas can differ.", 1, prometheus.Labels{"hash": c.Hash})
}
