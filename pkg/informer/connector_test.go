package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// away is an API server that can't be reached until some time.
type away struct {
	until time.Time
	dials atomic.Int64
}

func (a *away) dial(context.Context, string, string) (net.Conn, error) {
	a.dials.Add(1)
	if time.Now().Before(a.until) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	local, remote := net.Pipe()
	_ = remote.Close()
	return local, nil
}

// request is what a client does: it dials, and then answer gives the answer.
func (a *away) request(ctx context.Context, c *Connector, answer func() error) error {
	conn, err := c.Dial(ctx, "tcp", "server:6443")
	if err != nil {
		return &url.Error{Op: "Get", URL: "https://server:6443/api", Err: err}
	}
	_ = conn.Close()
	return answer()
}

// However long the API server was unavailable, all waiting requests are tried again within an interval after its
// return, and one probe serves all of them.
func TestConnectorNoticesTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minutes = 10 * time.Minute
		server := &away{until: time.Now().Add(minutes)}
		c := NewConnector(server.dial)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				err := c.reach(t.Context(), func() error { return server.request(t.Context(), c, func() error { return nil }) })
				if late := time.Since(server.until); err != nil || late > reach.Interval {
					t.Errorf("reached %s after it returned: %v", late, err)
				}
			})
		}
		all.Wait()
		if n := server.dials.Load(); n > int64(minutes/reach.Interval)+200 {
			t.Errorf("%d dials in %s", n, minutes)
		}
	})
}

// A server that accepts connections and closes them is tried at most four times a second.
func TestConnectorIsNotFooledByAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{}
		c := NewConnector(server.dial)
		began, tries := time.Now(), 0
		_ = c.reach(t.Context(), func() error {
			return server.request(t.Context(), c, func() error {
				tries++
				if time.Since(began) < 10*time.Second {
					return &url.Error{Op: "Get", Err: io.EOF}
				}
				return nil
			})
		})
		if tries < 40 || tries > 42 {
			t.Errorf("%d tries in 10 s", tries)
		}
	})
}

// What the API server answers is repeated at growing intervals of at most ten seconds (and a fifth), or when it says.
func TestConnectorBacksOffFromAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("not yet"))
		var c *Connector
		began := time.Now()
		last, longest := began, time.Duration(0)
		_ = c.Until(t.Context(), func() error {
			since := time.Since(last)
			longest = max(longest, since)
			if failing := last.Sub(began); failing > time.Second && since > failing/2 {
				t.Errorf("after %s of refusals it waits for %s", failing, since)
			}
			last = time.Now()
			if time.Since(began) < 5*time.Minute {
				return forbidden
			}
			return nil
		})
		if longest < 8*time.Second || longest > 12*time.Second {
			t.Errorf("it waits for up to %s", longest)
		}
		began = time.Now()
		tries := 0
		_ = c.Until(t.Context(), func() error {
			if tries++; tries == 1 {
				return apierrors.NewTooManyRequests("storage is initializing", 7)
			}
			return nil
		})
		if took := time.Since(began); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("asked to wait for 7 s, it waited for %s", took)
		}
	})
}

// An informer whose watch breaks opens the watch again at the same position as soon as the API server can be reached.
// If the position is too old, the informer lists at once.
func TestInformerRecoversAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{}
		c := NewConnector(server.dial)
		var watches, lists []time.Time
		broken := make(chan struct{})
		lw := &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (w watch.Interface, err error) {
				err = server.request(ctx, c, func() error {
					if options.SendInitialEvents != nil {
						lists = append(lists, time.Now())
						w = watch.NewFake()
						if len(lists) == 1 {
							w = &breaking{w, broken}
						}
						w = watchList(w, "10")
						return nil
					}
					watches = append(watches, time.Now())
					tooOld := watch.NewFakeWithChanSize(1, false)
					tooOld.Error(&apierrors.NewResourceExpired("too old resource version: 10 (12)").ErrStatus)
					w = tooOld
					return nil
				})
				return w, err
			},
		}
		i := New(Config{Source: Source{Resource: configMaps}, ListWatch: lw, Connector: c})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- i.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		server.until = time.Now().Add(10 * time.Minute)
		close(broken)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if len(watches) != 1 || len(lists) != 2 {
			t.Fatalf("watches %v, lists %v", watches, lists)
		}
		if late := watches[0].Sub(server.until); late > reach.Interval {
			t.Errorf("watched %s after the return", late)
		}
		if late := lists[1].Sub(server.until); late > 2*reach.Interval {
			t.Errorf("listed %s after the return", late)
		}
		cancel()
		do(t, <-ended)
	})
}

// breaking is a watch that ends when the channel is closed.
type breaking struct {
	watch.Interface
	broken chan struct{}
}

func (b *breaking) ResultChan() <-chan watch.Event {
	events := make(chan watch.Event)
	go func() { <-b.broken; close(events) }()
	return events
}

func TestUnreachable(t *testing.T) {
	answers := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis" {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		panic(http.ErrAbortHandler)
	}))
	answers.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	answers.StartTLS()
	defer answers.Close()
	get := func(config rest.Config, path string) error {
		client, err := NewClient(&config)
		do(t, err)
		return client.Get().AbsPath(path).MaxRetries(0).Do(t.Context()).Error()
	}
	trusting := rest.Config{Host: answers.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"given up", fmt.Errorf("get: %w", context.Canceled), false},
		{"timed out", fmt.Errorf("get: %w", context.DeadlineExceeded), true},
		{"a server that is away", get(rest.Config{Host: "https://127.0.0.1:1"}, "/api"), true},
		{"a name that is not known", get(rest.Config{Host: "https://nowhere.invalid"}, "/api"), true},
		{"a server that breaks the connection", get(trusting, "/api"), true},
		{"a server that answers 503", get(trusting, "/apis"), false},
		{"a certificate that is not trusted", get(rest.Config{Host: answers.URL}, "/api"), false},
	} {
		if got := unreachable(tt.err); got != tt.want {
			t.Errorf("%s: %t: %v", tt.name, got, tt.err)
		}
	}
}
