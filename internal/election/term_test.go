package election

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// durations are those of a term in a synctest bubble.
var durations = Config{LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second, RetryPeriod: time.Second}

func testTerm(t *testing.T, test func(ctx context.Context, stop func(), term *Term)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		term := newTerm(ctx, durations, slog.New(slog.DiscardHandler))
		defer term.close()
		test(ctx, stop, term)
	})
}

// expectTerm compares the state of a term, once everything that is due has happened.
func expectTerm(t *testing.T, term *Term, when string, runs, valid bool) {
	t.Helper()
	synctest.Wait()
	if err := term.Context().Err(); (err == nil) != runs {
		t.Errorf("%s: the error of the context is %v", when, err)
	}
	if got := term.Valid(); got != valid {
		t.Errorf("%s: Valid() = %t", when, got)
	}
}

func TestTermWithoutRenewals(t *testing.T) {
	testTerm(t, func(_ context.Context, _ func(), term *Term) {
		expectTerm(t, term, "before the term", true, false)
		time.Sleep(time.Minute)
		expectTerm(t, term, "a minute later", true, false)
		term.renew(time.Now())
		time.Sleep(6 * time.Second)
		term.renew(time.Now().Add(-2 * time.Second)) // the request took that long
		time.Sleep(5*time.Second - 1)
		expectTerm(t, term, "before the deadline", true, true)
		time.Sleep(time.Nanosecond)
		expectTerm(t, term, "at the deadline", false, true)
		term.renew(time.Now())
		time.Sleep(3*time.Second - 1)
		expectTerm(t, term, "before the Lease expires", false, true)
		time.Sleep(time.Nanosecond)
		expectTerm(t, term, "when the Lease expires", false, false)
		if err := context.Cause(term.Context()); !errors.Is(err, term.lostBy()) || err == nil {
			t.Errorf("the cause is %v", err)
		}
	})
}

// A process was stopped for a minute while it waited for a response.
func TestTermOfAStoppedProcess(t *testing.T) {
	testTerm(t, func(_ context.Context, _ func(), term *Term) {
		term.renew(time.Now())
		term.renew(time.Now().Add(-time.Minute))
		expectTerm(t, term, "after a late response", false, false)
		term.renew(time.Now())
		expectTerm(t, term, "after the next one", false, false)
	})
}

func TestTermAfterTheContextOfLead(t *testing.T) {
	testTerm(t, func(_ context.Context, stop func(), term *Term) {
		term.renew(time.Now())
		stop()
		for range 10 {
			time.Sleep(5 * time.Second)
			expectTerm(t, term, "while it is renewed", false, true)
			term.renew(time.Now())
		}
		term.lose(errors.New("it was deleted"))
		expectTerm(t, term, "when the Lease was deleted", false, false)
	})
}

func TestLostTerm(t *testing.T) {
	testTerm(t, func(_ context.Context, _ func(), term *Term) {
		term.lose(errors.New("another process holds it"))
		expectTerm(t, term, "before the term", true, false)
		term.renew(time.Now())
		expectTerm(t, term, "after the first renewal", true, true)
		reason := errors.New("another process took it")
		term.lose(reason)
		expectTerm(t, term, "when it was lost", false, false)
		if err := context.Cause(term.Context()); !errors.Is(err, reason) {
			t.Errorf("the cause is %v", err)
		}
	})
}

// A Lease that another process held is not created for LeaseDuration after it was found to be missing.
func TestReserved(t *testing.T) {
	for name, test := range map[string]struct {
		holder string
		waits  bool
	}{"never seen": {"", false}, "held by this process": {"a", false}, "held by another process": {"b", true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &Candidate{config: durations, identity: "a", log: slog.New(slog.DiscardHandler)}
				c.observe(resourcelock.LeaderElectionRecord{HolderIdentity: test.holder})
				time.Sleep(time.Hour)
				for range 2 { // it is found to be missing again and again
					c.reserve()
					c.observe(resourcelock.LeaderElectionRecord{})
					if c.isReserved() != test.waits {
						t.Errorf("reserved: %t", !test.waits)
					}
					time.Sleep(durations.LeaseDuration / 2)
				}
				if c.isReserved() {
					t.Error("reserved for longer than LeaseDuration")
				}
			})
		})
	}
}
