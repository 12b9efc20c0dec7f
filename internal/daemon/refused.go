package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/reload"
)

// refusedInterval is the interval between two attempts to start with a configuration that is refused.
const refusedInterval = 5 * time.Second

// UntilAccepted calls start until it does not refuse the configuration, and returns its error. In between, the process
// serves the reason over HTTP. SIGHUP ends the wait for the next attempt. If ctx ends during a wait, the error is nil.
// UntilAccepted uses the file, the version, the log and the hangups in the options.
func UntilAccepted(ctx context.Context, o Options, start func() error, isRefused func(error) bool) error {
	name, err := processName()
	if err != nil {
		return err
	}
	r := refusal{Options: o, name: name, started: time.Now()}
	for {
		err := start()
		if !isRefused(err) || ctx.Err() != nil {
			return err
		}
		if r.wait(ctx, err); ctx.Err() != nil {
			return nil //nolint:nilerr // the reason was logged
		}
	}
}

// refusal is a process whose configuration is refused.
type refusal struct {
	Options

	name    string // of the process
	started time.Time
	problem control.Problem // why it is refused
}

// wait waits for the next attempt to start, and serves HTTP meanwhile, at the address in the file, if it can be read.
func (r *refusal) wait(ctx context.Context, refused error) {
	ctx, cancel := context.WithTimeout(ctx, refusedInterval)
	defer cancel()
	cfg := config.Readable(r.File)
	log := newLogger(cfg.Log.Format, slog.LevelInfo, r.Log)
	text := strings.ReplaceAll(refused.Error(), "\n", "; ")
	listener, err := net.Listen("tcp", cfg.HTTP.Listen)
	if text != r.problem.Text {
		r.problem = control.Problem{
			Text:   text,
			Remedy: "correct the configuration; the bridge then starts",
			Since:  time.Now(),
		}
		log.Error("configuration refused, waiting for a corrected file", "file", r.File, "err", text)
		if err != nil {
			log.Warn("cannot serve the reason over HTTP", "err", err)
		}
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		select {
		case <-r.Hangups:
			cancel()
		case <-ctx.Done():
		}
	})
	if err == nil {
		_ = control.Serve(ctx, listener, r.handler(cfg)) // if it fails, the next attempt to start is the remedy
	}
}

// handler returns the handler of the HTTP server. Probes see a process that is alive and not ready.
func (r *refusal) handler(cfg *config.Config) http.Handler {
	problem := r.problem
	reason := "the configuration is refused: " + problem.Text
	hash, _ := reload.HashFile(r.File) // it may not be YAML
	status := control.Status{
		Replica: control.Replica{
			Name: r.name, Version: r.Version, Started: r.started, Since: r.started, Role: roleOf(cfg),
			NotReady: []string{reason},
		},
		Configuration: control.Configuration{File: r.File, Error: &problem, Refused: hash},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready:\n- "+reason, http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("GET "+control.StatusPath, serveStatus(func() control.Status {
		s := status
		s.At = time.Now()
		s.Judge()
		return s
	}))
	return mux
}
