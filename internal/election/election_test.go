package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

func TestNew(t *testing.T) {
	valid := Config{
		Lease:         Lease{"default", "leader"},
		LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second, RetryPeriod: time.Second,
	}
	for name, test := range map[string]struct {
		change   func(*Config)
		identity string
		err      string
	}{
		"valid":              {func(*Config) {}, "a", ""},
		"no identity":        {func(*Config) {}, "", "leader election: Lock identity is empty"},
		"parts of a second":  {func(c *Config) { c.LeaseDuration += time.Millisecond }, "a", "leader election: LeaseDuration 10.001s: must be a whole number of seconds"},
		"deadline too long":  {func(c *Config) { c.RenewDeadline = c.LeaseDuration }, "a", "leader election: leaseDuration must be greater than renewDeadline"},
		"deadline too short": {func(c *Config) { c.RenewDeadline = c.RetryPeriod }, "a", "leader election: renewDeadline must be greater than retryPeriod*JitterFactor"},
	} {
		t.Run(name, func(t *testing.T) {
			config := valid
			test.change(&config)
			_, err := New(config, &rest.Config{Host: "https://127.0.0.1:1"}, test.identity, slog.New(slog.DiscardHandler))
			if got := errorText(err); got != test.err {
				t.Errorf("error %q, not %q", got, test.err)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The waiting candidate would poll only after the end of the test.
func TestReleaseIsNoticed(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	proxy, through := k.proxy()
	a := k.start("a", k.slow(), through)
	first := a.term()
	expectVacancy(t, first, Start, 0, observe.Soon)
	b := k.start("b", k.slow(), k.Config)
	b.sees("a")
	expectValid(t, first)
	a.stop()
	begin := time.Now()
	a.finish <- struct{}{}
	second := b.term()
	t.Logf("b leads %s after the end of a's work", time.Since(begin).Round(time.Millisecond))
	expectVacancy(t, second, Released, 0, time.Since(begin))
	expectLost(t, first)
	expectValid(t, second)
	k.expectHolder("b")
	await(t, a.ended, "end of a")
	if holder, since := b.Holder(); holder != "b" || since.Sub(begin).Abs() > observe.Soon {
		t.Errorf("b sees %q since %s", holder, since)
	}
	observe.Eventually(t, func() error {
		if n := proxy.Connections(); n > 0 {
			return fmt.Errorf("%d connections are open after the end of a", n)
		}
		return nil
	})
}

// The Lease is deleted. The leader notices it, and leads again. The waiting candidate would wait longer than the test.
func TestDeletionIsNoticed(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	a := k.start("a", k.steady(), k.Config)
	first := a.term()
	b := k.start("b", k.slow(), k.Config)
	b.sees("a")
	k.deleteLease()
	begin := time.Now()
	await(t, first.Context().Done(), "end of a's term")
	t.Logf("a knows it after %s: %v", time.Since(begin).Round(time.Millisecond), context.Cause(first.Context()))
	expectLost(t, first)
	a.finish <- struct{}{}
	second := a.term()
	k.expectHolder("a")
	expectValid(t, second)
	a.stop() // although the Lease was deleted, the other candidate can take it when it is released
	a.finish <- struct{}{}
	b.term()
	k.expectHolder("b")
}

// The Lease is deleted while the leader cannot reach the API server. Another candidate does not lead before the leader
// knows that the Lease may have expired.
func TestDeletedWhileUnreachable(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	proxy, through := k.proxy()
	a := k.start("a", k.firm(), through)
	first := a.term()
	b := k.start("b", k.firm(), k.Config, func() { expectLost(t, first) })
	b.sees("a")
	proxy.Freeze()
	k.deleteLease()
	begin := time.Now()
	b.term()
	t.Logf("b leads %s after the deletion", time.Since(begin).Round(time.Millisecond))
	k.expectHolder("b")
	proxy.Thaw()
	a.finish <- struct{}{}
	a.sees("b")
}

func TestExpiredLease(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	const duration = 3 * time.Second
	begin := time.Now()
	k.createLease("dead", duration)
	a := k.start("a", k.config(), k.Config)
	a.sees("dead")
	if _, since := a.Holder(); !since.Equal(k.lease().Spec.AcquireTime.Time) {
		t.Errorf("since %s, not %s", since, k.lease().Spec.AcquireTime)
	}
	term := a.term()
	expectVacancy(t, term, Expired, duration, time.Since(begin))
	if took := time.Since(begin); took < duration {
		t.Errorf("the Lease was taken after %s", took)
	} else {
		t.Logf("the Lease was taken %s after it had expired", (took - duration).Round(time.Millisecond))
	}
}

// expectVacancy expects that a term has just begun, after a vacancy of a duration between two limits.
func expectVacancy(t *testing.T, term *Term, reason Reason, least, most time.Duration) {
	t.Helper()
	before := term.Before()
	if d := time.Since(before.Since); before.Reason != reason || d < least || d > most {
		t.Errorf("vacant for %s: %s", d, before.Reason)
	}
}

// The leader cannot reach the API server.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*sinktest.Proxy){
		"silent": (*sinktest.Proxy).Freeze,
		"refused": func(p *sinktest.Proxy) {
			p.SetTarget("127.0.0.1:1")
			p.Cut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKube(t)
			proxy, through := k.proxy()
			a := k.start("a", k.firm(), through)
			first := a.term()
			b := k.start("b", k.firm(), k.Config, func() { expectLost(t, first) })
			b.sees("a")
			disturb(proxy)
			await(t, first.Context().Done(), "end of a's term")
			if got := errorText(context.Cause(first.Context())); got != "the lease was not renewed for 7s" {
				t.Errorf("the cause is %q", got)
			}
			second := b.term()
			proxy.SetTarget(k.server())
			proxy.Thaw()
			a.finish <- struct{}{} // must not release what b holds
			a.sees("b")
			k.expectHolder("b")
			expectValid(t, second)

			b.stop()
			b.finish <- struct{}{}
			third := a.term()
			expectLost(t, second)
			expectValid(t, third)
		})
	}
}

// Connections that lose all packets cost one request, not the term.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	lost := make(chan struct{})
	as := rest.CopyConfig(k.Config)
	as.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		select {
		case <-lost:
			return conn, err
		default:
			return &lossyConn{Conn: conn, lost: lost, closed: make(chan struct{})}, err
		}
	}
	config := k.config() // a request may take half of RenewDeadline, and the machine may stand still for five seconds
	config.LeaseDuration, config.RenewDeadline = 16*time.Second, 14*time.Second
	a := k.start("a", config, as)
	term := a.term()
	var idle sync.WaitGroup
	for range 10 { // requests at the same time have a connection each, which is idle afterwards
		idle.Go(func() {
			_, err := a.leases.Leases(k.namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	idle.Wait()
	close(lost)
	select {
	case <-term.Context().Done():
		t.Errorf("the term has ended: %v", context.Cause(term.Context()))
	case <-time.After(config.RenewDeadline + time.Second):
	}
}

// lossyConn is a connection that receives nothing after lost was closed.
type lossyConn struct {
	net.Conn

	lost, closed chan struct{}
	close        sync.Once
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.lost:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *lossyConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// The work of a term takes longer than the context of Lead and LeaseDuration.
func TestLeaseIsHeldUntilTheWorkHasEnded(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	config := k.firm()
	a := k.start("a", config, k.Config)
	first := a.term()
	b := k.start("b", config, k.Config)
	b.sees("a")
	a.stop()
	await(t, first.Context().Done(), "end of the context")
	b.expectNoTerm(config.LeaseDuration + time.Second)
	if !first.Valid() {
		t.Errorf("the term is not valid anymore: %v", first.lostBy())
	}
	k.expectHolder("a")
	a.finish <- struct{}{}
	await(t, a.ended, "end of a")
	b.term()
}

// If the work of a term returns by itself, another candidate leads.
func TestResignation(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	config := k.steady()
	config.RetryPeriod = time.Second
	a := k.start("a", config, k.Config)
	a.term()
	b := k.start("b", config, k.Config)
	b.sees("a")
	a.finish <- struct{}{}
	b.term()
	a.sees("b")
	b.finish <- struct{}{}
	a.term()
}

func TestEligible(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	var eligible atomic.Bool
	config := k.steady()
	config.Eligible = eligible.Load
	a := k.start("a", config, k.Config)
	a.expectNoTerm(time.Second)
	k.createLease("", time.Second)
	a.expectNoTerm(time.Second)
	eligible.Store(true)
	term := a.term()
	eligible.Store(false) // makes no difference for the leader
	later := time.Now().Add(config.RetryPeriod)
	observe.Eventually(t, func() error {
		if !k.lease().Spec.RenewTime.After(later) {
			return errors.New("the Lease was not renewed")
		}
		return nil
	})
	expectValid(t, term)
	if strings.Contains(a.log.String(), "level=WARN") {
		t.Errorf("logged:\n%s", a.log)
	}
}

func TestMissingRights(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		missing string
		exists  bool // the Lease
		leads   bool
	}{
		{"get", true, false},
		{"create", false, false},
		{"update", true, false},
		{"watch", false, true},
	} {
		t.Run(test.missing, func(t *testing.T) {
			t.Parallel()
			k := newKube(t)
			verbs := slices.DeleteFunc([]string{"get", "create", "update", "watch"}, func(verb string) bool {
				return verb == test.missing
			})
			path, err := cluster.Shared(t).RestrictedKubeconfig(t.Context(), []rbacv1.PolicyRule{
				{Verbs: verbs, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}},
			})
			observe.Must(t, err)
			as, err := clientcmd.BuildConfigFromFlags("", path)
			observe.Must(t, err)
			if test.exists {
				k.createLease("", time.Second)
			}
			a := k.start("a", k.steady(), as)
			message := `level=ERROR msg="right to use the lease is missing, retrying" lease=` + k.namespace +
				`/leader verb=` + test.missing + " "
			observe.Eventually(t, func() error {
				if log := a.log.String(); !strings.Contains(log, message) {
					return fmt.Errorf("logged:\n%s", log)
				}
				return nil
			})
			if test.leads {
				a.term()
				b := k.start("b", k.steady(), as)
				b.sees("a")
				a.stop()
				a.finish <- struct{}{}
				b.term()
				return
			}
			a.expectNoTerm(2 * time.Second)
			if n := strings.Count(a.log.String(), "missing"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, a.log)
			}
		})
	}
}

// Several candidates with short terms: there is never more than one term at a time, and each candidate leads.
func TestRace(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	config := k.steady()
	config.RetryPeriod = 50 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var candidates sync.WaitGroup
	var leaders, terms atomic.Int32
	for n := range 3 {
		c, err := New(config, k.Config, fmt.Sprint("candidate-", n), slog.New(slog.DiscardHandler))
		observe.Must(t, err)
		candidates.Go(func() {
			err := c.Lead(ctx, func(term *Term) {
				if now := leaders.Add(1); now != 1 {
					t.Errorf("%d leaders", now)
				}
				select {
				case <-term.Context().Done():
				case <-time.After(10 * time.Millisecond):
				}
				leaders.Add(-1)
				if terms.Add(1) == 30 {
					stop()
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	candidates.Wait()
	t.Logf("%d changes of the leader", *k.lease().Spec.LeaseTransitions)
}
