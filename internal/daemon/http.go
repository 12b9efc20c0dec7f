package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/guard"
	"github.com/deltabridge/deltabridge/internal/page"
	"github.com/deltabridge/deltabridge/internal/reload"
	"github.com/deltabridge/deltabridge/internal/replica"
)

// frontend is the HTTP server of the process. It outlives the engines.
type frontend struct {
	listener net.Listener
	name     string // of the process
	version  string // of the program
	started  time.Time
	guard    *guard.Guard
	reload   *reload.Reloader
	task     atomic.Pointer[task]
	takeOver atomic.Pointer[control.Recorder] // the last one; nil if there was none
	page     *page.Page                       // nil without http.ui
	auditing atomic.Pointer[auditing]         // nil unless it accepts audit events as one of several replicas
}

// task is what the process does at the moment.
type task struct {
	role      control.Role
	since     time.Time
	readiness func() (reasons, notes []string)
	pages     http.Handler          // /metrics, /healthz and /readyz; nil without an engine and a copy of the state log
	commands  http.Handler          // nil if the process does not lead
	status    func() control.Status // of the engine; nil if the process does not lead
	copy      *replica.Copy         // nil without a state log
}

// listen opens the listener of the HTTP server. The server has the role until serve is called.
func listen(
	address, name, version string, role control.Role, g *guard.Guard, r *reload.Reloader,
) (*frontend, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("http.listen %s: %w (choose another address, or stop the program that uses it)", address, err)
	}
	f := &frontend{listener: listener, name: name, version: version, started: time.Now(), guard: g, reload: r}
	f.serve(task{role: role, readiness: func() (reasons, notes []string) { return []string{"starting"}, nil }})
	return f, nil
}

// serve answers all requests from now on about this task.
func (f *frontend) serve(t task) {
	t.since = time.Now()
	if last := f.task.Load(); last != nil && last.role == t.role { // a changed configuration is loaded, for example
		t.since = last.since
	}
	f.task.Store(&t)
}

// handler returns the handler of the server.
func (f *frontend) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch t := f.task.Load(); {
		case t.pages != nil:
			t.pages.ServeHTTP(w, r)
		case r.URL.Path == "/healthz":
			healthy(w, r)
		default:
			reasons, _ := t.readiness()
			http.Error(w, "not ready:\n- "+strings.Join(reasons, "\n- "), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET "+control.StatusPath, serveStatus(f.status))
	mux.Handle("/api/", f.guard.Protect(f.commands()))
	f.page.Register(mux)
	return mux
}

func healthy(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// serveStatus returns a handler that answers with a status.
func serveStatus(status func() control.Status) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status()) // fails if the client has disconnected
	}
}

// commands returns the handler of commands. The caller decides which requests it is given.
func (f *frontend) commands() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+control.ReloadPath, f.reload)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		if err := f.auditing.Load().refuse(r.URL.Query()["sink"]); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		switch t := f.task.Load(); {
		case t.commands != nil:
			t.commands.ServeHTTP(w, r)
		case t.role == control.Single:
			http.Error(w, "the bridge is starting: try again", http.StatusServiceUnavailable)
		default:
			http.Error(w, "this replica is not the leader; send the request to the leader, see `bridge status`",
				http.StatusServiceUnavailable)
		}
	})
	return mux
}

// status returns the status of the process.
func (f *frontend) status() control.Status {
	t := f.task.Load()
	s := control.Status{At: time.Now()}
	if t.status != nil {
		s = t.status()
	}
	s.Configuration = f.reload.Status()
	s.Replica = f.replica(t)
	f.auditing.Load().note(&s)
	s.Judge()
	return s
}

func (f *frontend) replica(t *task) control.Replica {
	r := control.Replica{
		Name: f.name, Version: f.version, Started: f.started, Role: t.role, Since: t.since,
		TakeOver: f.takeOver.Load().Report(),
	}
	r.NotReady, r.Notes = t.readiness()
	r.Ready = len(r.NotReady) == 0
	if t.copy != nil {
		r.Epoch = t.copy.Epoch()
		if behind := t.copy.Behind(); behind >= 0 {
			r.BehindCommits = &behind
		}
	}
	return r
}

// during serves HTTP while call runs. If HTTP cannot be served any longer, it ends the context of call.
func (f *frontend) during(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() {
		err := control.Serve(serving, f.listener, f.handler())
		if err != nil {
			cancel()
		}
		served <- err
	}()
	err := call(ctx)
	f.page.Close()
	stop()
	return errors.Join(err, <-served)
}
