package informer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// clock is a fake one.
type clock struct{ now time.Time }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func TestStale(t *testing.T) {
	for _, tt := range []struct {
		name      string
		bookmarks bool
		limit     time.Duration
	}{{"with bookmarks", true, 3 * time.Minute}, {"without bookmarks", false, 12 * time.Minute}} {
		t.Run(tt.name, func(t *testing.T) {
			c := &clock{now: time.Unix(1000, 0)}
			i := New(Config{Source: Source{Resource: configMaps}})
			i.status.now = func() time.Time { return c.now }
			s := (*store)(i)
			stale := func(want bool, when string) {
				t.Helper()
				if got := i.Status(); got.Stale != want {
					t.Errorf("%s: stale %t, last contact %s ago", when, got.Stale, c.now.Sub(got.LastContact))
				}
			}
			c.pass(time.Hour)
			stale(false, "no list yet: that is not synced, not stale")
			do(t, s.Replace(nil, "5"))
			s.UpdateResourceVersion("5")
			if tt.bookmarks {
				do(t, s.Bookmark("6"))
				s.UpdateResourceVersion("6")
			}
			c.pass(tt.limit)
			stale(false, "at the limit")
			c.pass(time.Second)
			stale(true, "after the limit")
			do(t, s.Add(state(t, "a", "x", "u1", 7)))
			s.UpdateResourceVersion("7")
			stale(false, "after an event")
			c.pass(tt.limit + time.Second)
			stale(true, "after the limit again")
			i.status.requested(verbWatch, nil)
			stale(false, "after the next watch was opened")
			c.pass(tt.limit + time.Second)
			i.status.requested(verbWatch, errors.New("no route to host"))
			stale(true, "after a watch that could not be opened")
		})
	}
}

// scripted answers each list and watch with the next error of its script, nil for success.
type scripted struct {
	cache.ListerWatcherWithContext
	answers []error
}

func (s *scripted) next() (err error) {
	err, s.answers = s.answers[0], s.answers[1:]
	return err
}

func (s *scripted) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return nil, s.next()
}

func (s *scripted) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, s.next()
}

func TestFailuresAreNewsOnce(t *testing.T) {
	forbidden := apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("by RBAC"))
	refused := func(port int) error { return fmt.Errorf("dial from port %d: no way", port) }
	type request struct {
		verb string
		err  error
	}
	list, watch := func(err error) request { return request{verbList, err} }, func(err error) request { return request{verbWatch, err} }
	for _, tt := range []struct {
		name     string
		requests []request
		news     []string // what is logged above debug level
		errors   int64
		last     string // LastError
		refused  bool   // Forbidden
	}{
		{name: "nothing fails", requests: []request{watch(nil), list(nil), watch(nil)}},
		{
			name:     "the API server is away and comes back",
			requests: []request{watch(refused(1)), list(refused(2)), watch(refused(3)), list(refused(4)), watch(nil), watch(nil)},
			news:     []string{"WARN request failed", "INFO requests succeed"}, errors: 4,
		},
		{
			name:     "everything is forbidden forever",
			requests: []request{watch(forbidden), list(forbidden), watch(forbidden), list(forbidden)},
			news:     []string{"WARN request failed"}, errors: 4, last: "watch: " + forbidden.Error(), refused: true,
		},
		{
			name:     "watches are forbidden, lists are not",
			requests: []request{watch(forbidden), list(nil), watch(forbidden), list(nil), watch(forbidden), list(nil)},
			news:     []string{"WARN request failed"}, errors: 3, last: "watch: " + forbidden.Error(), refused: true,
		},
		{
			name:     "lists are forbidden, watches are not",
			requests: []request{list(forbidden), watch(nil), watch(nil)},
			news:     []string{"WARN request failed", "INFO requests succeed"}, errors: 1,
		},
		{
			name:     "another failure",
			requests: []request{watch(refused(1)), list(refused(1)), watch(forbidden), list(forbidden), watch(refused(2)), list(refused(2)), list(nil)},
			news:     []string{"WARN request failed", "WARN request failed", "WARN request failed"}, errors: 6, last: "watch: " + refused(2).Error(),
		},
		{
			name:     "two failures at once",
			requests: []request{watch(forbidden), list(refused(1)), watch(forbidden), list(refused(2))},
			news:     []string{"WARN request failed", "WARN request failed"}, errors: 4, last: "watch: " + forbidden.Error(), refused: true,
		},
		{
			name:     "cancelled requests are none",
			requests: []request{list(context.Canceled), watch(fmt.Errorf("get: %w", context.Canceled))},
		},
		{
			name:     "unauthorized",
			requests: []request{watch(apierrors.NewUnauthorized("who are you?"))},
			news:     []string{"WARN request failed"}, errors: 1, last: "watch: who are you?", refused: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			s := &scripted{}
			i := New(
				Config{Source: Source{Resource: configMaps}, ListWatch: s, Logger: slog.New(slog.NewTextHandler(&log, nil))},
			)
			lw := &observedListWatch{informer: i, runCtx: t.Context()}
			for _, r := range tt.requests {
				s.answers = append(s.answers, r.err)
				var err error
				if r.verb == verbList {
					_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
				} else {
					_, err = lw.WatchWithContext(t.Context(), metav1.ListOptions{})
				}
				if !errors.Is(err, r.err) {
					t.Errorf("%s: the Reflector is told %v, not %v", r.verb, err, r.err)
				}
			}
			var news []string
			for line := range strings.Lines(log.String()) {
				_, level, _ := strings.Cut(line, "level=")
				level, _, _ = strings.Cut(level, " ")
				_, message, _ := strings.Cut(line, `msg="`)
				message, _, _ = strings.Cut(message, `"`)
				message, _, _ = strings.Cut(message, ",")
				news = append(news, level+" "+strings.TrimSuffix(message, " again"))
			}
			if diff := gocmp.Diff(tt.news, news); diff != "" {
				t.Errorf("log (-want +got):\n%s\n%s", diff, log.String())
			}
			got := i.Status()
			if got.Errors != tt.errors || got.LastError != tt.last || got.Forbidden != tt.refused {
				t.Errorf("status: %d errors, the last one %q, forbidden %t", got.Errors, got.LastError, got.Forbidden)
			}
		})
	}
}

// What the Reflector would wait for in a way that does not end, it is not told; all else keeps its cause.
func TestWatchListErrors(t *testing.T) {
	busy := apierrors.NewTooManyRequests("busy", 1)
	expired := apierrors.NewResourceExpired("too old")
	initial := true
	for _, tt := range []struct {
		err  error
		list bool
		kept bool
	}{
		{busy, true, false},
		{busy, false, true},
		{expired, true, true},
		{expired, false, true},
	} {
		lw := &observedListWatch{
			informer: New(Config{Source: Source{Resource: configMaps}, ListWatch: &scripted{answers: []error{tt.err}}}),
			runCtx:   t.Context(),
		}
		var options metav1.ListOptions
		if tt.list {
			options.SendInitialEvents = &initial
		}
		_, err := lw.WatchWithContext(t.Context(), options)
		if err == nil || err.Error() != tt.err.Error() || errors.Is(err, tt.err) != tt.kept {
			t.Errorf("%v, watch-list %t: %#v", tt.err, tt.list, err)
		}
	}
}

// A document that is not an event is a failed request of the watch, until that is open again.
func TestMalformedDocuments(t *testing.T) {
	var log bytes.Buffer
	i := New(Config{Source: Source{Resource: configMaps}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	do(t, (*store)(i).Replace(nil, "5"))
	bad := fmt.Errorf("%w: garbage", object.ErrMalformed)
	i.watchFailed(bad)
	i.watchFailed(bad)
	if got := i.Status(); got.Errors != 2 || got.LastError != bad.Error() {
		t.Errorf("%d errors, the last: %s", got.Errors, got.LastError)
	}
	if n := strings.Count(log.String(), "after=5"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	lw := &observedListWatch{informer: i, runCtx: t.Context()}
	i.config.ListWatch = &scripted{answers: []error{nil}}
	_, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	do(t, err)
	i.watchFailed(apierrors.NewResourceExpired("too old"))
	if got := i.Status(); got.Errors != 2 || got.LastError != "" {
		t.Errorf("%d errors, the last: %s", got.Errors, got.LastError)
	}
}

// A list that finds the resource where the watch ended means that nothing was missed.
func TestRelistWithoutAGap(t *testing.T) {
	i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
	i.AddEventHandler(j)
	s := (*store)(i)
	do(t, s.Replace(list(state(t, "a", "x", "u1", 1)), "5"))
	j.take()
	do(t, s.Replace(list(state(t, "a", "x", "u1", 1)), "5"))
	expect(t, j)
	if got := i.Status(); got.Relists != 1 {
		t.Errorf("%d re-lists", got.Relists)
	}
}
