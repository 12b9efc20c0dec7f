package access_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/test/certs"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if _, err := access.Secret(
		"kafka.x",
		file,
	); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasSuffix(err.Error(), "; mount the file, or correct kafka.x") {
		t.Errorf("missing: %v", err)
	}
	for text, want := range map[string]string{"secret": "secret", " a b \r\n\n": " a b ", "\n": "", "": ""} {
		write(t, file, text)
		got, err := access.Secret("kafka.x", file)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestStamp: contents count, not times; what comes and goes counts too.
func TestStamp(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "one")
	first := access.Stamp(a, "", b)
	if err := os.Chtimes(a, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if access.Stamp(a, "", b) != first {
		t.Error("another time is another stamp")
	}
	write(t, b, "")
	second := access.Stamp(a, "", b)
	write(t, a, "two")
	if third := access.Stamp(a, "", b); second == first || third == second {
		t.Error("what has changed has the same stamp")
	}
}

func TestDialError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Err: &net.DNSError{Name: "a", IsNotFound: true}}, `a:1: resolve: there is no host "a"; correct the name in x.url, or the DNS record`},
		{
			&net.DNSError{Name: "a", Err: "server misbehaving", Server: "10.0.0.1:53", IsTemporary: true},
			`a:1: resolve: cannot resolve "a": server misbehaving; check DNS on this machine or pod (including egress to port 53) (see x.url)`,
		},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "a:1: connect: nothing listens there (connection refused); start the broker, or correct the port in x.url"},
		{os.ErrDeadlineExceeded, "a:1: connect: no answer within 2s; check x.url, and check that no firewall or NetworkPolicy blocks the connection"},
		{errors.New("else"), "a:1: connect: else (see x.url)"},
	} {
		err := access.DialError(t.Context(), "a:1", "x.url", 2*time.Second, c.err)
		if err.Error() != c.want {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := access.DialError(ctx, "a:1", "x.url", 0, os.ErrDeadlineExceeded); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestJoin(t *testing.T) {
	one := &sinks.ConnectError{Step: sinks.StepConnect, Address: "a:1", Err: fs.ErrNotExist}
	err := access.Join("server ", []error{one, errors.New("b"), errors.New("b")})
	if got := err.Error(); got != "server a:1: connect: file does not exist; server b" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s", got)
	}
}

func TestRedact(t *testing.T) {
	got := []string{access.Redact("no s3cret here: s3cret", "s3cret"), access.Redact("words", "")}
	if diff := cmp.Diff([]string{"no *** here: ***", "words"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTLSFiles: the error of each invalid file contains the configuration key.
func TestTLSFiles(t *testing.T) {
	dir := t.TempDir()
	authority, err := certs.New("authority")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := authority.IssueFiles(dir, certs.Options{Name: "client"})
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := authority.IssueFiles(t.TempDir(), certs.Options{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	garbage, gone := filepath.Join(dir, "garbage"), filepath.Join(dir, "gone")
	write(t, garbage, "garbage")
	for _, c := range []struct {
		tls       access.TLS
		key, text string
	}{
		{access.TLS{CertFile: certFile, KeyFile: keyFile}, "", ""},
		{access.TLS{CAFile: gone}, "x.tls.caFile", "no such file"},
		{access.TLS{CAFile: garbage}, "x.tls.caFile", "no PEM certificate in "},
		{access.TLS{CertFile: gone, KeyFile: keyFile}, "x.tls.certFile", "no such file"},
		{access.TLS{CertFile: certFile, KeyFile: gone}, "x.tls.keyFile", "no such file"},
		{access.TLS{CertFile: certFile, KeyFile: otherKey}, "x.tls.certFile", "private key does not match public key"},
	} {
		_, err := c.tls.NewSession("x.tls")
		if err == nil {
			if c.key != "" {
				t.Errorf("%+v: no error", c.tls)
			}
			continue
		}
		ce, ok := errors.AsType[*sinks.ConnectError](err)
		if !ok || ce.Step != sinks.StepFiles || ce.Key != c.key || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.tls, err)
		}
	}
}

// Reach finds the address that accepts connections, and explains why each other address does not accept any.
func TestReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	explain := func(addr string, err error) error {
		return fmt.Errorf("broker %w", access.DialError(t.Context(), addr, "x.url", time.Second, err))
	}
	var p reach.Prober
	up := l.Addr().String()
	if addr, err := access.Reach(t.Context(), &p, []string{"127.0.0.1:1", up}, explain); addr != up || err != nil {
		t.Errorf("%q, %v", addr, err)
	}
	_, err = access.Reach(t.Context(), &p, []string{"127.0.0.1:1", "127.0.0.1:2"}, explain)
	want := "broker 127.0.0.1:1: connect: nothing listens there (connection refused); start the broker, or correct the port in x.url"
	want += "; " + strings.ReplaceAll(want, ":1:", ":2:")
	if fmt.Sprint(err) != want || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v\nwant %s", err, want)
	}
	if _, err := access.Reach(t.Context(), &p, nil, explain); err == nil {
		t.Error("no address, no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := access.Reach(ctx, &p, []string{"127.0.0.1:1"}, explain); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// A connection that the other side closed is told from one that timed out. Texts do not contain the local port.
func TestClosedTimedOutPlain(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40001}
	read := &net.OpError{Op: "read", Net: "tcp", Source: local, Addr: local, Err: syscall.ECONNRESET}
	late := &net.OpError{Op: "read", Net: "tcp", Source: local, Err: os.ErrDeadlineExceeded}
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
	for _, c := range []struct {
		err              error
		closed, timedOut bool
	}{
		{fmt.Errorf("reading: %w", read), true, false},
		{io.EOF, true, false},
		{io.ErrUnexpectedEOF, true, false},
		{fmt.Errorf("reading: %w", late), false, true},
		{dial, false, true},
		{context.DeadlineExceeded, false, true},
		{errors.New("else"), false, false},
	} {
		if access.Closed(c.err) != c.closed || access.TimedOut(c.err) != c.timedOut {
			t.Errorf("%v: closed %v, timed out %v", c.err, access.Closed(c.err), access.TimedOut(c.err))
		}
	}
	if got := access.Plain(fmt.Errorf("a: %w", read)); got.Error() != "read tcp: connection reset by peer" {
		t.Errorf("%v", got)
	}
	for _, err := range []error{dial, io.EOF} {
		if got := access.Plain(err); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}
