package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"
)

// servePprof serves profiles of this process (net/http/pprof) and prints the address of the server. stop ends the
// server. Profiles reveal data in memory, so the address should be reachable only from this machine.
func servePprof(addr string, out io.Writer) (stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(listener) }) // Serve returns an error when the server is closed
	fmt.Fprintf(out, "pprof=%s\n", listener.Addr())
	return func() {
		_ = server.Close() // aborts running profiles
		group.Wait()
	}, nil
}
