package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// startServer starts a nats-server without JetStream. It returns the server and its address.
func startServer(t *testing.T, edit func(*server.Options)) (*server.Server, string) {
	t.Helper()
	opts := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}
	if edit != nil {
		edit(opts)
	}
	srv, stop := natsserver.Start(t, opts)
	t.Cleanup(stop)
	return srv, srv.Addr().String()
}

func stopServer(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

// startAt starts a server at an address that was used before.
func startAt(t *testing.T, addr string, edit func(*server.Options)) *server.Server {
	t.Helper()
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv, _ := startServer(t, func(o *server.Options) {
		o.Port = tcp.Port
		if edit != nil {
			edit(o)
		}
	})
	return srv
}

// says accepts connections, and says greeting and nothing more.
func says(t *testing.T, greeting string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			nc, err := l.Accept()
			if err != nil {
				for _, nc := range open {
					_ = nc.Close()
				}
				return
			}
			_, _ = nc.Write([]byte(greeting))
			open = append(open, nc)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secure lets a server use a certificate for 127.0.0.1 with a lifetime, and demand one of its clients if mutual.
func secure(t *testing.T, a *certs.Authority, lifetime time.Duration, mutual bool) func(*server.Options) {
	t.Helper()
	cert, key, err := a.Issue(certs.Options{Name: "server", Hosts: []string{"127.0.0.1"}, Lifetime: lifetime})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM())
	return func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, MinVersion: tls.VersionTLS12}
		if mutual {
			o.TLSConfig.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
}
