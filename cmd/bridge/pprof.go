package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/deltabridge/deltabridge/internal/control"
)

// servePprof serves profiles of this process (net/http/pprof) until ctx ends, and prints the address of the server.
// Profiles reveal data in memory, so the address should be reachable only from this machine.
func servePprof(ctx context.Context, addr string, out io.Writer) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("--pprof: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	go func() { _ = control.Serve(ctx, listener, mux) }() // the bridge runs without profiles too
	fmt.Fprintf(out, "pprof=%s\n", listener.Addr())
	return nil
}
