package audit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// readTimeout is that of a request, including its body. API servers give up after 30 s.
	readTimeout = 30 * time.Second
	// shutdownTimeout is how long Run waits for running requests at the end.
	shutdownTimeout = 10 * time.Second

	headTimeout = 10 * time.Second // of the TLS handshake, and of the head of a request
	// answerTimeout is how much longer than reading a request, writing the response may take.
	answerTimeout = 30 * time.Second
	// idleTimeout is longer than that of an API server (90 s), so that a connection is never closed while it sends a
	// request.
	idleTimeout  = 5 * time.Minute
	maxHeadBytes = 64 << 10
)

// ServerOptions are the options of a Server. Address, Handler and Logger are required, and without CertFile, Address
// must be a loopback address.
type ServerOptions struct {
	Address string // host:port
	// CertFile and KeyFile are PEM files with the certificate of the server and its key. ClientCAFile is one with the CAs
	// of client certificates. The server refuses a certificate of another CA; the Handler decides about clients without
	// one. The files are read for each connection. If they cannot be used, connections are accepted with what they
	// contained before.
	CertFile, KeyFile, ClientCAFile string

	Handler http.Handler
	Logger  *slog.Logger
}

// Server serves a Handler with TLS, and with HTTP/2 or HTTP/1.1.
type Server struct {
	opts     ServerOptions
	listener net.Listener
	tls      *credentials // nil without TLS

	readTimeout, shutdownTimeout time.Duration
}

// NewServer checks the options and opens the listener. Run must be called, because it closes the listener.
func NewServer(o ServerOptions) (*Server, error) {
	s := &Server{opts: o, readTimeout: readTimeout, shutdownTimeout: shutdownTimeout}
	var err error
	switch {
	case o.CertFile != "" || o.KeyFile != "" || o.ClientCAFile != "":
		s.tls, err = newCredentials(&o)
	case !isLoopback(o.Address):
		err = errors.New("requests would not be encrypted; set a certificate, or listen on a loopback address")
	}
	if err == nil {
		s.listener, err = net.Listen("tcp", o.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("audit intake %s: %w", o.Address, err)
	}
	return s, nil
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends. It then accepts no more requests, waits for the running ones, and closes all connections.
// It returns an error if it cannot serve any longer, or if requests did not end in time.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           s.opts.Handler,
		ReadHeaderTimeout: min(headTimeout, s.readTimeout),
		ReadTimeout:       s.readTimeout,
		WriteTimeout:      s.readTimeout + answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeadBytes,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug), // failed handshakes, such as probes
	}
	ended := make(chan error, 1)
	go func() {
		if s.tls == nil {
			ended <- server.Serve(s.listener)
			return
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.tls.config}
		ended <- server.ServeTLS(s.listener, "", "")
	}()
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("audit intake: %w", err), server.Close())
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdownTimeout)
	defer cancel()
	err := server.Shutdown(last)
	if err != nil {
		err = errors.Join(fmt.Errorf("audit intake: requests did not end within %v: %w", s.shutdownTimeout, err),
			server.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// isLoopback reports whether an address is only reachable from this machine.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
