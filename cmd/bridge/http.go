package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/deltabridge/deltabridge/internal/control"
)

// frontend is the HTTP server of the process. It serves the endpoints of the engine that was built last.
type frontend struct {
	listener net.Listener
	engine   atomic.Pointer[http.Handler] // nil until an engine is built
}

func listen(address string) (*frontend, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("http.listen %s: %w (choose another address, or stop the program that uses it)", address, err)
	}
	return &frontend{listener: listener}, nil
}

// serve lets handler answer all requests from now on.
func (f *frontend) serve(handler http.Handler) { f.engine.Store(&handler) }

// ServeHTTP implements [http.Handler].
func (f *frontend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch engine := f.engine.Load(); {
	case engine != nil:
		(*engine).ServeHTTP(w, r)
	case r.URL.Path == "/healthz":
		_, _ = io.WriteString(w, "ok\n")
	default:
		http.Error(w, "not ready:\n- starting", http.StatusServiceUnavailable)
	}
}

// during serves HTTP while call runs. If HTTP cannot be served any longer, it ends the context of call.
func (f *frontend) during(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() {
		err := control.Serve(serving, f.listener, f)
		if err != nil {
			cancel()
		}
		served <- err
	}()
	err := call(ctx)
	stop()
	return errors.Join(err, <-served)
}
