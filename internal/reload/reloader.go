package reload

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

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// pollInterval is the interval at which the configuration file is read. Files that Kubernetes mounts are symbolic links
// to other files after a change, so notifications about a file would not be enough.
const pollInterval = 5 * time.Second

// Options configures a Reloader. Only Peers can be nil.
type Options struct {
	File   string         // the configuration file; empty if the bridge runs without one
	Config *config.Config // the configuration in use at the start: what File contains
	Name   string         // of this process, as in its status
	// Build builds the parts of an engine, which is the last check of a configuration.
	Build  func(*config.Config) (engine.Options, error)
	Level  *slog.LevelVar // the level of the log, which follows the configuration
	Logger *slog.Logger
	// Peers returns the status of the replicas at these addresses; control.ReadStatus if nil.
	Peers func(ctx context.Context, addresses []string) []control.Answer
}

// Loaded is a configuration that was read and checked.
type Loaded struct {
	*config.Config

	Hash string // see HashFile; empty without a file
	// parts are what the check has built, for one engine. It is nil after that.
	parts *engine.Options
}

// Copy is a copy of the state log. *replica.Copy implements it.
type Copy interface {
	// SetConfiguration makes the log name a configuration, at once or later.
	SetConfiguration(ctx context.Context, hash string) error
	// Reach returns nil if the log has everything that this process has, and can be written now.
	Reach(ctx context.Context) error
	// Store returns the checkpoint, which contains the events that wait for sinks.
	Store() *checkpoint.Store
}

// Reloader reads the configuration file again while the bridge runs, checks it, and keeps what is accepted until it is
// used. It is safe for concurrent use.
type Reloader struct {
	opts Options

	examining sync.Mutex // held while the file is examined

	mu      sync.Mutex // guards the following fields
	current *Loaded
	since   time.Time // since when it is in use
	seen    [sha256.Size]byte
	copy    Copy             // nil without a state log
	problem *control.Problem // why the file is not in use; nil if it is
	refused string           // with a problem: the hash of the file, if it has one
	waits   string           // what the accepted configuration waits for
	running bool             // an engine runs, which must take what is accepted
	pending *Loaded          // what was accepted, and is not in use yet
	changed chan struct{}    // has an element after pending was set
}

// New returns a Reloader. It returns an error if the file cannot be read, or if the parts of an engine cannot be built.
func New(o Options) (*Reloader, error) {
	if o.Peers == nil {
		o.Peers = control.ReadStatus
	}
	parts, err := o.Build(o.Config)
	if err != nil {
		return nil, err
	}
	first := &Loaded{Config: o.Config, parts: &parts}
	if o.File != "" {
		if first.Hash, err = HashFile(o.File); err != nil {
			return nil, err
		}
	}
	o.Level.Set(o.Config.Log.Level.Level())
	return &Reloader{opts: o, current: first, since: time.Now(), changed: make(chan struct{}, 1)}, nil
}

// Follow makes a copy of the state log name the configuration in use. From now on, a configuration is refused if events
// in the copy wait for sinks that it does not have, unless an engine runs.
func (r *Reloader) Follow(c Copy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copy = c
}

// Watch examines the file at intervals, and whenever it receives a signal, until ctx ends.
func (r *Reloader) Watch(ctx context.Context, hangups <-chan os.Signal) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, _ = r.examine(ctx, false) // an error is logged
		case <-hangups:
			if answer, err := r.examine(ctx, true); err == nil {
				r.opts.Logger.Info("SIGHUP received", "answer", answer)
			}
		}
	}
}

// ServeHTTP reads the file now. The answer says whether it is accepted, which is before it is in use.
func (r *Reloader) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	answer, err := r.examine(request.Context(), true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	_, _ = io.WriteString(w, answer+"\n") // fails if the client has disconnected
}

// examine reads the file and checks it, if it has changed, if it was rejected before, or if always is true. The answer
// says what follows.
func (r *Reloader) examine(ctx context.Context, always bool) (answer string, err error) {
	if r.opts.File == "" {
		return "", errors.New("the bridge runs without a configuration file")
	}
	r.examining.Lock()
	defer r.examining.Unlock()
	data, err := os.ReadFile(r.opts.File)
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
		refused, _ := hash(data) // it may not be YAML
		r.refuse(err, refused)
		return "", err
	case config.Same(next.Config, current.Config):
		r.keep()
		return "the configuration has not changed", nil
	}
	r.accept(ctx, next)
	return "the changed configuration is valid and is loaded", nil
}

// check returns the configuration in a file with the content data. failed is the error of reading the file.
func (r *Reloader) check(current *Loaded, data []byte, failed error) (*Loaded, error) {
	if failed != nil {
		return nil, fmt.Errorf("configuration file: %w", failed)
	}
	cfg, err := config.ParseChanged(r.opts.File, data, current.Config)
	if err != nil {
		return nil, err
	}
	next := &Loaded{Config: cfg}
	if next.Hash, err = hash(data); err != nil || config.Same(cfg, current.Config) {
		return next, err
	}
	parts, err := r.opts.Build(cfg)
	if err != nil {
		return nil, err
	}
	next.parts = &parts
	r.mu.Lock()
	c, running := r.copy, r.running
	r.mu.Unlock()
	if c != nil && !running {
		err = OrphanedEvents(c.Store(), cfg)
	}
	return next, err
}

// refuse records why a file with the given hash is not used. The configuration in use stays.
func (r *Reloader) refuse(err error, refused string) {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	r.mu.Lock()
	isNews := r.problem == nil || r.problem.Text != text
	if isNews {
		r.problem = &control.Problem{
			Text: text, Since: time.Now(), Remedy: "correct the configuration; the bridge continues with the earlier one",
		}
	}
	r.refused, r.pending, r.waits = refused, nil, ""
	r.mu.Unlock()
	if isNews {
		r.opts.Logger.Error("changed configuration refused, continuing with the earlier one",
			"file", r.opts.File, "err", text)
	}
}

// keep records that the file has the configuration in use.
func (r *Reloader) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem != nil || r.pending != nil {
		r.opts.Logger.Info("the configuration file has the configuration in use again", "file", r.opts.File)
	}
	r.problem, r.refused, r.pending, r.waits = nil, "", nil, ""
}

// accept uses a configuration, or leaves it to the engine that runs.
func (r *Reloader) accept(ctx context.Context, next *Loaded) {
	r.mu.Lock()
	if r.pending == nil || !config.Same(r.pending.Config, next.Config) { // otherwise its wait goes on
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
	r.use(ctx, next)
}

// use records that a configuration is in use.
func (r *Reloader) use(ctx context.Context, next *Loaded) {
	r.mu.Lock()
	r.current, r.since, r.problem, r.refused, r.waits = next, time.Now(), nil, "", ""
	if r.pending == next {
		r.pending = nil
	}
	c := r.copy
	r.mu.Unlock()
	r.opts.Level.Set(next.Log.Level.Level())
	r.opts.Logger.Info("changed configuration is in use", "file", r.opts.File, "hash", next.Hash, "sinks", len(next.Sinks))
	if c == nil {
		return
	}
	if err := c.SetConfiguration(ctx, next.Hash); err != nil && ctx.Err() == nil {
		r.opts.Logger.Warn("state log does not name the changed configuration yet, trying again", "err", err)
	}
}

// InUse returns the configuration in use.
func (r *Reloader) InUse() *Loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// builtIn is the name of the configuration without a file.
const builtIn = "built-in"

// Status returns the status of the configuration.
func (r *Reloader) Status() control.Configuration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return control.Configuration{
		File: cmp.Or(r.opts.File, builtIn), Hash: r.current.Hash, Loaded: r.since,
		Error: r.problem, Refused: r.refused, Waits: r.waits,
	}
}
