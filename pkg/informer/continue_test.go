package informer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// failing is an API server with one object. Its first watch ends after one change. Then it answers a watch with an
// error, cannot be reached for a while, and answers watches with the error for another one. Meanwhile the object changes
// twice. The API server still has these changes.
type failing struct {
	t           *testing.T
	err         error
	gone, until time.Time
	began       bool
	failed      bool
}

func (f *failing) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	if !f.began {
		return &object.List{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}, nil
	}
	return &object.List{
		ListMeta: metav1.ListMeta{ResourceVersion: "13"}, Items: []*object.Object{state(f.t, "ns", "a", "u", 13)},
	}, nil
}

func (f *failing) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(2, false)
	switch {
	case !f.began:
		f.began = true
		w.Add(state(f.t, "ns", "a", "u", 11))
		w.Stop()
	case !f.failed:
		f.failed = true
		return nil, f.err
	case time.Now().Before(f.gone):
		return nil, syscall.ECONNREFUSED
	case time.Now().Before(f.until):
		return nil, f.err
	case o.ResourceVersion == "11":
		w.Modify(state(f.t, "ns", "a", "u", 12))
		w.Modify(state(f.t, "ns", "a", "u", 13))
	}
	return w, nil
}

// An error that says nothing about the position loses no state: the watch continues there. If the error stays, and
// lists succeed, the informer lists.
func TestWatchContinuesAfterErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	forbidden := apierrors.NewForbidden(resource, "", errors.New("the role is gone"))
	began := []string{"synced 10, 0 objects", "add ns/a(u)@11 initial=false"}
	continued := append(began[:2:2], "update ns/a(u)@11 -> ns/a(u)@12", "update ns/a(u)@12 -> ns/a(u)@13")
	listed := append(began[:2:2], "gap 11..13", "update ns/a(u)@11 -> ns/a(u)@13")
	for _, tt := range []struct {
		err     error
		away    time.Duration
		resumes bool          // it continues from a checkpoint
		gone    time.Duration // before the error
		want    []string
	}{
		{apierrors.NewServiceUnavailable("no backend"), time.Minute, false, 0, continued},
		{apierrors.NewServiceUnavailable("starting"), time.Minute, false, 2 * continuePatience, continued},
		{apierrors.NewGenericServerResponse(http.StatusBadGateway, "get", resource, "", "", 0, true), time.Minute, false, 0, continued},
		{apierrors.NewTimeoutError("upstream request timeout", 0), time.Minute, false, 0, continued},
		{apierrors.NewInternalError(errors.New("the authorizer is not available")), time.Minute, false, 0, continued},
		{apierrors.NewUnauthorized("the token has expired"), time.Minute, false, 0, continued},
		{forbidden, time.Minute, false, 0, continued},
		{forbidden, time.Hour, false, 0, listed},
		{apierrors.NewResourceExpired("too old"), time.Minute, false, 0, listed},
		{apierrors.NewNotFound(resource, ""), time.Minute, false, 0, listed},
		{forbidden, time.Minute, true, 0, continued[2:]},
	} {
		t.Run(tt.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := time.Now().Add(tt.gone)
				api := &failing{t: t, err: tt.err, gone: gone, until: gone.Add(tt.away)}
				c := Config{Source: Source{Resource: configMaps}, NoWatchList: true, ListWatch: &cache.ListWatch{
					ListWithContextFunc: api.list, WatchFuncWithContext: api.watch,
				}}
				if tt.resumes {
					api.began, c.Known, c.ResumeAt = true, []*object.Object{state(t, "ns", "a", "u", 11)}, "11"
				}
				i, j := New(c), &journal{}
				i.AddEventHandler(j)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.Run(ctx) }()
				time.Sleep(tt.gone + continuePatience + time.Minute)
				cancel()
				do(t, <-ended)
				expect(t, j, tt.want...)
			})
		})
	}
}

type responses func(*http.Request) string

// RoundTrip implements http.RoundTripper. A watch stays open after its response.
func (f responses) RoundTrip(r *http.Request) (*http.Response, error) {
	text := f(r) + "\n"
	body, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, text)
		if r.URL.Query().Has("watch") {
			<-r.Context().Done()
		}
		_ = w.Close()
	}()
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: body, Request: r}, nil
}

// The same applies to an error in the stream of a watch, which an API server sends if its etcd has no leader.
func TestWatchContinuesAfterErrorEvents(t *testing.T) {
	const (
		list     = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`
		noLeader = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",` +
			`"message":"etcdserver: no leader","reason":"InternalError","code":500}}`
		added = `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1",` +
			`"metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"8"}}}`
	)
	for _, tt := range []struct {
		away  time.Duration
		lists bool
	}{{time.Minute, false}, {time.Hour, true}} {
		t.Run(tt.away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lists atomic.Int64
				until := time.Now().Add(tt.away)
				api := responses(func(r *http.Request) string {
					switch {
					case !r.URL.Query().Has("watch"):
						lists.Add(1)
						return list
					case time.Now().Before(until):
						return noLeader
					default:
						return added
					}
				})
				client, err := NewClient(&rest.Config{Host: "http://api.example", Transport: api})
				do(t, err)
				source := Source{Resource: configMaps}
				i, j := New(Config{Source: source, ListWatch: ListWatch(client, source), NoWatchList: true}), &journal{}
				i.AddEventHandler(j)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.Run(ctx) }()
				time.Sleep(continuePatience - time.Second)
				if lists.Load() != 1 || i.Status().Errors == 0 {
					t.Errorf("%d lists, %+v", lists.Load(), i.Status())
				}
				time.Sleep(time.Minute)
				if (lists.Load() > 1) != tt.lists {
					t.Errorf("%d lists in the end", lists.Load())
				}
				cancel()
				do(t, <-ended)
				if !tt.lists {
					expect(t, j, "synced 7, 0 objects", "add ns/a(u)@8 initial=false")
				}
			})
		})
	}
}
