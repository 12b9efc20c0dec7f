package sinktest_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *sinktest.Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, bufio.NewReader(c)
}

// say sends a line and returns the answer.
func say(c net.Conn, r *bufio.Reader, wait time.Duration) (string, error) {
	_, _ = c.Write([]byte("hello\n"))
	_ = c.SetReadDeadline(time.Now().Add(wait))
	return r.ReadString('\n')
}

func TestProxyStallsAndRefuses(t *testing.T) {
	p := sinktest.NewProxy(t, echo(t))
	c, r := dial(t, p)
	if s, err := say(c, r, time.Minute); s != "hello\n" {
		t.Fatalf("before the stall: %q %v", s, err)
	}
	p.Stall()
	if s, err := say(c, r, 100*time.Millisecond); !os.IsTimeout(err) {
		t.Errorf("an old connection: %q %v, want a time-out", s, err)
	}
	c2, r2 := dial(t, p)
	if s, err := say(c2, r2, time.Minute); s != "hello\n" {
		t.Errorf("a new connection: %q %v", s, err)
	}
	p.Thaw()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if s, err := r.ReadString('\n'); s != "hello\n" {
		t.Errorf("an old connection after the stall: %q %v", s, err)
	}
	p.Refuse()
	c3, r3 := dial(t, p) // accepted by the system, and closed
	for name, pair := range map[string]func() (string, error){
		"old": func() (string, error) { return say(c2, r2, time.Minute) },
		"new": func() (string, error) { return say(c3, r3, time.Minute) },
	} {
		if s, err := pair(); err == nil || os.IsTimeout(err) {
			t.Errorf("%s connection to a proxy that refuses: %q %v", name, s, err)
		}
	}
	p.Thaw()
	c4, r4 := dial(t, p)
	if s, err := say(c4, r4, time.Minute); s != "hello\n" {
		t.Errorf("after the refusals: %q %v", s, err)
	}
}

func TestProxyFreezesAndThaws(t *testing.T) {
	p := sinktest.NewProxy(t, echo(t))
	c, r := dial(t, p)
	if s, err := say(c, r, time.Minute); s != "hello\n" {
		t.Fatalf("before the freeze: %q %v", s, err)
	}
	p.Freeze()
	c2, r2 := dial(t, p) // the proxy accepts connections even now
	for name, pair := range map[string]func() (string, error){
		"old connection": func() (string, error) { return say(c, r, 100*time.Millisecond) },
		"new connection": func() (string, error) { return say(c2, r2, 100*time.Millisecond) },
	} {
		if s, err := pair(); !os.IsTimeout(err) {
			t.Errorf("%s while frozen: %q %v, want a time-out", name, s, err)
		}
	}
	p.Thaw()
	for name, reader := range map[string]*bufio.Reader{"old": r, "new": r2} {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_ = c2.SetReadDeadline(time.Now().Add(time.Minute))
		if s, err := reader.ReadString('\n'); s != "hello\n" {
			t.Errorf("%s connection after the freeze: %q %v", name, s, err)
		}
	}
	p.Cut()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := r.ReadString('\n'); err == nil || os.IsTimeout(err) {
		t.Errorf("after Cut: %v, want a closed connection", err)
	}
}
