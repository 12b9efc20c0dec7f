package audit

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/certs"
)

func newAuthority(t testing.TB, name string) *certs.Authority {
	t.Helper()
	a, err := certs.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tlsOptions returns options with a certificate of the authority for 127.0.0.1, which also signs client certificates.
func tlsOptions(t testing.TB, a *certs.Authority) ServerOptions {
	t.Helper()
	dir := t.TempDir()
	o := ServerOptions{
		Address:      "127.0.0.1:0",
		ClientCAFile: filepath.Join(dir, "ca.crt"),
		Logger:       slog.New(slog.DiscardHandler),
	}
	writeFile(t, o.ClientCAFile, string(a.PEM()))
	var err error
	o.CertFile, o.KeyFile, err = a.IssueFiles(dir, certs.Options{Name: "intake", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// start runs a server until the test ends or stop is called. stop returns the error of Run.
func start(t testing.TB, o ServerOptions, change ...func(*Server)) (url string, stop func() error) {
	t.Helper()
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(s)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- nil
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := "https://"
	if o.CertFile == "" {
		scheme = "http://"
	}
	return scheme + s.Addr().String(), stop
}

// client returns a client that trusts the authority and, if signer is not nil, has a certificate of signer.
func client(t testing.TB, trusts, signer *certs.Authority, o certs.Options) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusts.PEM())
	if signer != nil {
		cert, key, err := signer.Issue(o)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends the events with the client. The text is empty if there is no response.
func send(t testing.TB, c *http.Client, url, token string) (status int, text string, proto int, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/audit", bytes.NewReader(sent(t)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(r)
	if err != nil {
		return 0, "", 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), response.ProtoMajor, err
}

// handshake returns the alert with which the server ends a TLS connection. The client's side of the handshake may
// succeed before.
func handshake(t testing.TB, c *http.Client, url string) error {
	t.Helper()
	nc, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), c.Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	_, err = nc.Read(make([]byte, 1))
	return err
}

func TestClientCertificates(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	j := openJournal(t, newDir(t))
	o := tlsOptions(t, ours)
	o.Handler, _ = newHandler(t, j, func(o *HandlerOptions) { o.Clients, o.Names = true, []string{"x", "kube-apiserver"} })
	url, _ := start(t, o)
	o.Handler, _ = newHandler(t, j, func(o *HandlerOptions) { o.Clients, o.TokenFile = true, "" })
	anyName, _ := start(t, o)
	ctl := certs.Options{Name: "kube-apiserver"}
	for _, c := range []struct {
		name, url string
		client    *http.Client
		token     string
		status    int
		text      string // or part of the error
	}{
		{"certificate", url, client(t, ours, ours, ctl), "", 200, ""},
		{"token", url, client(t, ours, nil, ctl), token, 200, ""},
		{"both", url, client(t, ours, ours, ctl), "wrong", 200, ""},
		{"neither", url, client(t, ours, nil, ctl), "", 401, "the request has no client certificate or bearer token"},
		{"wrong token", url, client(t, ours, nil, ctl), "wrong", 401, "the bearer token is not valid"},
		{"other name", url, client(t, ours, ours, certs.Options{Name: "kubelet"}), "", 403, `the common name "kubelet" of the client certificate is not one`},
		{"other name with token", url, client(t, ours, ours, certs.Options{Name: "kubelet"}), token, 200, ""},
		{"any name", anyName, client(t, ours, ours, certs.Options{Name: "kubelet"}), "", 200, ""},
		{"no certificate", anyName, client(t, ours, nil, ctl), "", 401, "the request has no client certificate"},
		{"token, but none is accepted", anyName, client(t, ours, nil, ctl), token, 401, "the request has no client certificate"},
		{"certificate of another CA", url, client(t, ours, other, ctl), token, 0, "remote error: tls: "},
		{"expired", url, client(t, ours, ours, certs.Options{Name: ctl.Name, Lifetime: -time.Minute}), token, 0, "remote error: tls: "},
		{"not valid yet", url, client(t, ours, ours, certs.Options{Name: ctl.Name, Early: time.Hour}), token, 0, "remote error: tls: "},
		{"server certificate", url, client(t, ours, ours, certs.Options{Name: ctl.Name, Hosts: []string{"127.0.0.1"}}), token, 0, "remote error: tls: "},
		{"unknown server", url, client(t, other, ours, ctl), "", 0, "certificate signed by unknown authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := j.Status().Last
			status, text, proto, err := send(t, c.client, c.url, c.token)
			if err != nil {
				err = handshake(t, c.client, c.url)
			}
			if status != c.status || !strings.Contains(text, c.text) && err == nil ||
				err != nil && !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%d %s, %v; want %d %s", status, text, err, c.status, c.text)
			}
			if err == nil && proto != 2 {
				t.Errorf("HTTP/%d", proto)
			}
			if stored := j.Status().Last - before; (stored == 3) != (status == 200) || stored > 3 {
				t.Errorf("%d events stored", stored)
			}
		})
	}
}

// A connection on which the client certificate expires is closed, so that the client sends its next one.
func TestCertificateExpiresOnConnection(t *testing.T) {
	ours := newAuthority(t, "ours")
	o := tlsOptions(t, ours)
	o.Handler, _ = newHandler(t, openJournal(t, newDir(t)), func(o *HandlerOptions) { o.Clients, o.TokenFile = true, "" })
	url, _ := start(t, o)
	var c *http.Client
	for try := 1; ; try++ {
		c = client(t, ours, ours, certs.Options{Name: "a", Lifetime: 3 * time.Second}) // certificates have whole seconds
		status, text, _, err := send(t, c, url, "")
		if status == 200 {
			break
		}
		if try == 10 { // or the machine stood still
			t.Fatalf("%d %s, %v", status, text, err)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(50 * time.Millisecond) {
		status, text, _, err := send(t, c, url, "")
		if status == 401 && strings.HasPrefix(text, "the client certificate expired on ") {
			break
		}
		if status != 200 || time.Now().After(deadline) {
			t.Fatalf("%d %s, %v", status, text, err)
		}
	}
	if _, _, _, err := send(t, c, url, ""); err == nil { // a new connection, with the same certificate
		t.Error("the connection was not closed")
	}
}

// Files that change are used for new connections. While they cannot be used, the last ones are.
func TestTLSFilesChange(t *testing.T) {
	ours, next := newAuthority(t, "ours"), newAuthority(t, "next")
	o := tlsOptions(t, ours)
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.Handler, _ = newHandler(t, openJournal(t, newDir(t)), func(o *HandlerOptions) { o.Clients, o.TokenFile = true, "" })
	url, stop := start(t, o)
	try := func(trusts, signer *certs.Authority, isAccepted bool) {
		t.Helper()
		status, text, _, err := send(t, client(t, trusts, signer, certs.Options{Name: "a"}), url, "")
		if (status == 200) != isAccepted {
			t.Errorf("%d %s, %v", status, text, err)
		}
	}
	try(ours, ours, true)
	try(ours, next, false)
	writeFile(t, o.ClientCAFile, string(next.PEM()))
	try(ours, ours, false)
	try(ours, next, true)
	key, err := os.ReadFile(o.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, o.KeyFile, "not a key")
	try(ours, next, true)
	try(ours, next, true)
	writeFile(t, o.KeyFile, string(key))
	if err := os.Remove(o.ClientCAFile); err != nil {
		t.Fatal(err)
	}
	try(ours, next, true)
	writeFile(t, o.ClientCAFile, "garbage")
	try(ours, next, true)
	writeFile(t, o.ClientCAFile, string(ours.PEM()))
	if _, _, err := next.IssueFiles(filepath.Dir(o.CertFile), certs.Options{Hosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	try(next, ours, true)
	try(ours, ours, false)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(log.String(), "level=WARN"); lines != 3 {
		t.Errorf("%d warnings\n%s", lines, &log)
	}
	if strings.Contains(log.String(), "not a key") {
		t.Error("the key is in the log")
	}
}

func TestNewServerErrors(t *testing.T) {
	o := tlsOptions(t, newAuthority(t, "ours"))
	_, otherKey, err := newAuthority(t, "other").IssueFiles(t.TempDir(), certs.Options{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		o    ServerOptions
		want string
	}{
		{ServerOptions{Address: ":0"}, "audit intake :0: requests would not be encrypted"},
		{ServerOptions{Address: "0.0.0.0:0"}, "audit intake 0.0.0.0:0: requests would not be encrypted"},
		{ServerOptions{Address: "loopback"}, "audit intake loopback: requests would not be encrypted"},
		{ServerOptions{Address: "127.0.0.1:0", ClientCAFile: o.ClientCAFile}, `certificate "" and key "": `},
		{ServerOptions{Address: ":0", CertFile: gone, KeyFile: o.KeyFile}, "no such file or directory; mount the files"},
		{ServerOptions{Address: ":0", CertFile: o.CertFile, KeyFile: otherKey}, "private key does not match public key"},
		{ServerOptions{Address: ":0", CertFile: o.CertFile, KeyFile: o.KeyFile, ClientCAFile: gone}, "client CA file: open "},
		{ServerOptions{Address: ":0", CertFile: o.CertFile, KeyFile: o.KeyFile, ClientCAFile: o.KeyFile}, "no PEM certificate in "},
		{ServerOptions{Address: taken.Addr().String()}, "address already in use"},
	} {
		if s, err := NewServer(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v\nwant %s", s, err, c.want)
		}
	}
}

// Each connection is checked with the current CAs, because no TLS session is resumed.
func TestNoResumption(t *testing.T) {
	ours := newAuthority(t, "ours")
	o := tlsOptions(t, ours)
	o.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.TLS.DidResume {
			t.Error("a TLS session was resumed")
		}
	})
	url, _ := start(t, o)
	c := client(t, ours, ours, certs.Options{Name: "a"})
	c.Transport.(*http.Transport).TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		if status, text, _, err := send(t, c, url, ""); status != 200 {
			t.Errorf("%d %s, %v", status, text, err)
		}
		c.CloseIdleConnections()
	}
}

func TestOldTLSRefused(t *testing.T) {
	ours := newAuthority(t, "ours")
	o := tlsOptions(t, ours)
	o.Handler = http.NotFoundHandler()
	url, _ := start(t, o)
	c := client(t, ours, nil, certs.Options{})
	config := c.Transport.(*http.Transport).TLSClientConfig
	config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, _, err := send(t, c, url, token); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}
}

// Run ends when running requests have ended, or after the timeout.
func TestShutdown(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"finished": time.Minute, "too slow": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			o := ServerOptions{Address: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
			begun, finish := make(chan struct{}), make(chan struct{})
			o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				<-finish
				w.WriteHeader(http.StatusNoContent)
			})
			url, stop := start(t, o, func(s *Server) { s.shutdownTimeout = timeout })
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			answered := make(chan int, 1)
			go func() {
				status, _, _, _ := send(t, c, url, "")
				answered <- status
			}()
			<-begun
			stopped := make(chan error)
			go func() { stopped <- stop() }()
			if name == "too slow" {
				if err := <-stopped; !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				close(finish)
				<-answered
				return
			}
			for { // until no connection is accepted
				nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
				if err != nil {
					break
				}
				nc.Close()
			}
			select {
			case err := <-stopped:
				t.Errorf("stopped before the response: %v", err)
			default:
			}
			close(finish)
			if status := <-answered; status != http.StatusNoContent {
				t.Errorf("%d", status)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		})
	}
}

// A client that sends its request too slowly gets a response, and nothing is stored.
func TestSlowClient(t *testing.T) {
	ours := newAuthority(t, "ours")
	j := openJournal(t, newDir(t))
	h, counted := newHandler(t, j)
	for name, o := range map[string]ServerOptions{
		"HTTP/1.1": {Address: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}, "HTTP/2": tlsOptions(t, ours),
	} {
		t.Run(name, func(t *testing.T) {
			o.Handler = h
			url, _ := start(t, o, func(s *Server) { s.readTimeout = time.Second })
			reader, writer := io.Pipe()
			defer writer.Close()
			go func() { _, _ = writer.Write([]byte(`{"kind":`)) }()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, reader)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+token)
			response, err := client(t, ours, nil, certs.Options{}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusRequestTimeout {
				t.Errorf("%d %s", response.StatusCode, text)
			}
		})
	}
	if counted.refused[Invalid] != 2 || j.Status().Last != 0 {
		t.Errorf("%v, %+v", counted.refused, j.Status())
	}
}
