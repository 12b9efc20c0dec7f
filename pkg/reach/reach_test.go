package reach

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/test/freeport"
)

// network is a network of which the test says who can be reached. A dial takes delay, and fails with err.
type network struct {
	mu    sync.Mutex
	up    map[string]bool
	delay time.Duration
	err   error
	dials []time.Duration // when, since start
	start time.Time
}

func newNetwork() *network {
	return &network{up: map[string]bool{}, err: syscall.ECONNREFUSED, start: time.Now()}
}

func (n *network) set(addr string, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up[addr] = up
}

func (n *network) dialed() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]time.Duration(nil), n.dials...)
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, time.Since(n.start))
	up := n.up[addr]
	n.mu.Unlock()
	if up {
		a, b := net.Pipe()
		_ = b.Close()
		return a, nil
	}
	select {
	case <-time.After(n.delay):
		return nil, n.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// While nobody answers at all, and each dial takes its whole timeout, there is a new one every Interval nevertheless.
func TestDialsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		n.delay = Timeout
		p := &Prober{Dial: n.dial}
		time.AfterFunc(60*time.Second+100*time.Millisecond, func() { n.set("a:1", true) })
		if addr, failures := p.Wait(t.Context(), "a:1"); addr != "a:1" || failures != nil {
			t.Fatal(addr, failures)
		}
		if late := time.Since(n.start) - 60*time.Second - 100*time.Millisecond; late > Interval {
			t.Errorf("noticed after %v", late)
		}
		dials := n.dialed()
		for i := range dials[1:] {
			if dials[i+1]-dials[i] > Interval {
				t.Fatalf("dials at %v and %v", dials[i], dials[i+1])
			}
		}
	})
}

// Many who wait for one address share its dials, and all of them are woken; whoever comes later starts anew.
func TestWaitersShareAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		p := &Prober{Dial: n.dial}
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				if addr, failures := p.Wait(t.Context(), "a:1", "b:1"); failures != nil || addr != "b:1" {
					t.Error(addr, failures)
				}
			})
		}
		time.AfterFunc(2*time.Second-time.Millisecond, func() { n.set("b:1", true) })
		all.Wait()
		if dials := len(n.dialed()); dials > 18 || dials < 16 {
			t.Errorf("%d dials of two addresses in 2 s", dials)
		}
		if len(p.probes) != 0 {
			t.Errorf("%d probes left", len(p.probes))
		}
		if addr, failures := p.Wait(t.Context(), "b:1"); addr != "b:1" || failures != nil {
			t.Error(addr, failures)
		}
	})
}

// When the context ends the failures say why each address could not be reached, and nothing is left behind.
func TestWaitGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		p := &Prober{Dial: n.dial}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		addr, failures := p.Wait(ctx, "b:1", "a:1", "b:1")
		want := []Failure{{"a:1", syscall.ECONNREFUSED}, {"b:1", syscall.ECONNREFUSED}}
		if addr != "" || time.Since(n.start) != time.Second || !slices.Equal(want, failures) {
			t.Errorf("reached %q after %v, failures %v", addr, time.Since(n.start), failures)
		}
		synctest.Wait()
		before := len(n.dialed())
		time.Sleep(10 * time.Second)
		if after := len(n.dialed()); after != before || len(p.probes) != 0 {
			t.Errorf("%d dials while nobody waits, %d probes", after-before, len(p.probes))
		}
	})
}

// One who gives up does not disturb the others.
func TestOthersGoOnWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		p := &Prober{Dial: n.dial}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(3*time.Second, func() { n.set("a:1", true) })
		go func() { _, _ = p.Wait(ctx, "a:1") }()
		if addr, failures := p.Wait(t.Context(), "a:1"); addr != "a:1" {
			t.Fatal(failures)
		}
	})
}

// The real thing: a port where nobody listens, until somebody does. A machine that does much else notices it late, but not
// each time.
func TestARealListener(t *testing.T) {
	for round := 1; ; round++ {
		late := noticed(t)
		if late <= 4*Interval { // one, on a machine that has nothing else to do
			return
		}
		if round == 5 {
			t.Fatalf("noticed after %v", late)
		}
	}
}

// noticed returns how late a prober notices that somebody listens.
func noticed(t *testing.T) (late time.Duration) {
	t.Helper()
	found, err := freeport.Reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := freeport.Address(found[0])
	p := new(Prober)
	done := make(chan time.Time)
	go func() {
		if reached, failures := p.Wait(t.Context(), addr); reached != addr {
			t.Error(failures)
		}
		done <- time.Now()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Interval)
	defer cancel()
	if reached, _ := p.Wait(ctx, addr); reached != "" {
		t.Fatal("reached, although nobody listens")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listening := time.Now()
	return (<-done).Sub(listening)
}

func TestDialReachesAnyAddressOfAHost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	conn, err := Dial(t.Context(), "tcp", net.JoinHostPort("localhost", port)) // ::1 as well, on most machines
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := Dial(t.Context(), "tcp", "127.0.0.1"); err == nil {
		t.Error("an address without a port was accepted")
	}
}

// One address that swallows packets does not delay another, and a connection that comes too late is closed.
func TestAllAddressesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
			switch addr {
			case "silent":
				<-ctx.Done()
				return nil, ctx.Err()
			case "refused":
				return nil, syscall.ECONNREFUSED
			}
			time.Sleep(10 * time.Millisecond)
			a, b := net.Pipe()
			_ = b.Close()
			return &counted{a, &closed}, nil
		}
		start := time.Now()
		conn, err := first(t.Context(), "tcp", []string{"silent", "refused", "good", "good too"}, dial)
		if err != nil || time.Since(start) > 10*time.Millisecond || closed != 1 {
			t.Fatal(err, time.Since(start), closed)
		}
		_ = conn.Close()
		if _, err := first(t.Context(), "tcp", []string{"refused", "refused"}, dial); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	})
}

// counted counts how many connections were closed.
type counted struct {
	net.Conn
	closed *int
}

func (c *counted) Close() error {
	*c.closed++
	return c.Conn.Close()
}
