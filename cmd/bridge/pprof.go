package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"

	"github.com/deltabridge/deltabridge/internal/control"
)

// servePprof serves profiles of this process (net/http/pprof) and prints the address of the server. stop ends the
// server. Profiles reveal data in memory, so the address should be reachable only from this machine.
func servePprof(ctx context.Context, addr string, out io.Writer) (stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { _ = control.Serve(ctx, listener, mux) }) // if it fails, the bridge continues without profiles
	fmt.Fprintf(out, "pprof=%s\n", listener.Addr())
	return func() { cancel(); group.Wait() }, nil
}
