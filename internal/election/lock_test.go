package election

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/deltabridge/deltabridge/test/observe"
)

// client is an http.RoundTripper.
type client func(*http.Request) (*http.Response, error)

func (c client) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// wrap returns the administrator's configuration with another client.
func (k *kube) wrap(round func(http.RoundTripper, *http.Request) (*http.Response, error)) *rest.Config {
	config := rest.CopyConfig(k.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return client(func(r *http.Request) (*http.Response, error) { return round(next, r) })
	})
	return config
}

// lock returns the lock of a term, without an elector. Neither the term nor a request ends because it takes long.
func (k *kube) lock(as *rest.Config) *lock {
	k.t.Helper()
	c, err := New(k.slow(), as, "a", slog.New(slog.DiscardHandler))
	observe.Must(k.t, err)
	term := newTerm(k.t.Context(), c.config, c.log)
	k.t.Cleanup(func() {
		term.close()
		c.closeIdleConnections()
	})
	return c.newLock(term)
}

// An elector would continue its term in each of these cases.
func TestLostTermIsNotContinued(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		disturb func(*kube)
		lost    string
	}{
		"not at all":            {func(*kube) {}, ""},
		"another process holds": {func(k *kube) { k.setHolder("other") }, "another process holds the lease: other"},
		"another process has held": {func(k *kube) {
			k.setHolder("other")
			k.setHolder("")
		}, "another process has held and released the lease"},
		"deleted": {(*kube).deleteLease, "the lease was deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKube(t)
			l := k.lock(k.Config)
			term := l.term
			record := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 4}
			observe.Must(t, l.Create(t.Context(), record))
			expectValid(t, term)
			test.disturb(k)
			_, _, _ = l.Get(t.Context())
			if got := errorText(context.Cause(term.Context())); got != test.lost {
				t.Errorf("lost: %q, not %q", got, test.lost)
			}
			if term.Valid() != (test.lost == "") {
				t.Errorf("Valid() = %t", term.Valid())
			}
			for verb, send := range map[string]func(context.Context, resourcelock.LeaderElectionRecord) error{
				"create": l.Create, "update": l.Update,
			} {
				if err := send(t.Context(), record); test.lost != "" && errorText(err) != test.lost {
					t.Errorf("%s: %v", verb, err)
				}
			}
			if _, _, err := l.Get(t.Context()); errorText(err) != test.lost {
				t.Errorf("get: %v", err)
			}
		})
	}
}

func (k *kube) setHolder(holder string) {
	k.t.Helper()
	lease := k.lease()
	lease.Spec.HolderIdentity = &holder
	_, err := k.CoordinationV1().Leases(k.namespace).Update(k.t.Context(), lease, metav1.UpdateOptions{})
	observe.Must(k.t, err)
}

func (k *kube) deleteLease() {
	k.t.Helper()
	observe.Must(k.t, k.CoordinationV1().Leases(k.namespace).Delete(k.t.Context(), leaseName, metav1.DeleteOptions{}))
}

// A renewal counts from the time before the request, because the Lease may expire for others from then on.
func TestRenewalCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	var sent time.Time
	l := k.lock(k.wrap(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		sent = time.Now()
		return next.RoundTrip(r)
	}))
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 4}
	for _, send := range []func(context.Context, resourcelock.LeaderElectionRecord) error{l.Create, l.Update} {
		observe.Must(t, send(t.Context(), record))
		if l.term.renewed.After(sent) {
			t.Errorf("counts from %s after the request", l.term.renewed.Sub(sent))
		}
	}
}

// Each renewal changes what Get returns, so that a waiting elector does not consider a Lease expired that is renewed
// several times in a second.
func TestRenewalsInOneSecond(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	holder, other := k.lock(k.Config), k.lock(k.Config)
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity: "b", LeaseDurationSeconds: 4, RenewTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
	observe.Must(t, holder.Create(t.Context(), record))
	var last []byte
	for range 3 {
		_, raw, err := other.Get(t.Context())
		observe.Must(t, err)
		if bytes.Equal(raw, last) {
			t.Errorf("a renewal was missed: %s", raw)
		}
		last = raw
		record.RenewTime.Time = record.RenewTime.Add(time.Millisecond)
		observe.Must(t, holder.Update(t.Context(), record))
	}
	if _, raw, err := other.Get(t.Context()); err != nil || bytes.Equal(raw, last) {
		t.Errorf("%v: %s", err, raw)
	}
}

// The API server has created the Lease, but the candidate did not learn about it before it ended.
func TestUnknownResultIsReleased(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	created, release := make(chan struct{}), make(chan struct{})
	a := k.start("a", k.steady(), k.wrap(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodPost && err == nil {
			_ = response.Body.Close()
			close(created)
			<-release
			return nil, errors.New("the connection was lost")
		}
		return response, err
	}))
	await(t, created, "Lease")
	k.expectHolder("a")
	a.stop()
	close(release)
	await(t, a.ended, "end of a")
	k.expectHolder("")
	a.expectNoTerm(0)
}
