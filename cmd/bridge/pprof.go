package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // only servePprof serves the default mux, on which the package registers its handlers
)

// servePprof serves profiles of this process until it ends, and prints the address of the server. Profiles reveal data
// in memory, so the address should be reachable only from this machine.
func servePprof(addr string, out io.Writer) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("--pprof: %w", err)
	}
	fmt.Fprintf(out, "pprof=%s\n", listener.Addr())
	go func() { _ = http.Serve(listener, nil) }() //nolint:gosec // a profile may take any time
	return nil
}
