package informer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// A watch is too old. The state from where the API server has the changes is listed, and the watch goes on there: only
// what came before is missing. If it does not have that state, or again no watch from there, the present one is listed.
func TestAListBeginsWhereTheHistoryDoes(t *testing.T) {
	relisted := []string{"watch-list", "watch 10", "watch-list"}
	for _, tt := range []struct {
		name         string
		message      string // with which the watch from 10 ends
		compacted    bool   // there is no list of the past
		tooFast      bool   // a watch from 12 is too old, too
		asked, lines []string
	}{
		{
			name: "listed in the past", message: "too old resource version: 10 (12)",
			asked: []string{"watch-list", "watch 10", "list Exact 12 ", "list   more", "watch 12"},
			lines: []string{"gap 10..12", "update ns/a(u-a)@5 -> ns/a(u-a)@11", "add ns/b(u-b)@12 initial=false", "update ns/a(u-a)@11 -> ns/a(u-a)@13"},
		},
		{
			name: "another message", message: "The resourceVersion for the provided watch is too old.",
			asked: relisted, lines: []string{"gap 10..20", "update ns/a(u-a)@5 -> ns/a(u-a)@19"},
		},
		{
			name: "compacted", message: "too old resource version: 10 (12)", compacted: true,
			asked: []string{"watch-list", "watch 10", "list Exact 12 ", "list  10 ", "watch 20"},
			lines: []string{"gap 10..20", "update ns/a(u-a)@5 -> ns/a(u-a)@19"},
		},
		{
			name: "the history is gone when it is listed", message: "too old resource version: 10 (12)", tooFast: true,
			asked: []string{"watch-list", "watch 10", "list Exact 12 ", "list   more", "watch 12", "watch-list"},
			lines: []string{
				"gap 10..12", "update ns/a(u-a)@5 -> ns/a(u-a)@11", "add ns/b(u-b)@12 initial=false",
				"gap 12..20", "delete ns/b(u-b)@12 unseen=true", "update ns/a(u-a)@11 -> ns/a(u-a)@19",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var i *Informer
				var asked []string
				broken := make(chan struct{})
				fails := func(message string) watch.Interface {
					status := &apierrors.NewResourceExpired(message).ErrStatus
					i.watchFailed(apierrors.FromObject(status)) // as a ListerWatcher does
					w := watch.NewFakeWithChanSize(1, false)
					w.Error(status)
					return w
				}
				lw := &cache.ListWatch{
					ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
						asked = append(asked, fmt.Sprintf("list %s %s %s", o.ResourceVersionMatch, o.ResourceVersion, o.Continue))
						switch {
						case tt.compacted && o.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
							return nil, apierrors.NewResourceExpired("compacted")
						case tt.compacted:
							return &object.List{
								ListMeta: metav1.ListMeta{ResourceVersion: "20"},
								Items:    []*object.Object{state(t, "ns", "a", "u-a", 19)},
							}, nil
						case o.Continue == "":
							return &object.List{
								ListMeta: metav1.ListMeta{ResourceVersion: "12", Continue: "more"},
								Items:    []*object.Object{state(t, "ns", "a", "u-a", 11)},
							}, nil
						}
						return &object.List{
							ListMeta: metav1.ListMeta{ResourceVersion: "12"},
							Items:    []*object.Object{state(t, "ns", "b", "u-b", 12)},
						}, nil
					},
					WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
						w := watch.NewFakeWithChanSize(1, false)
						if o.SendInitialEvents != nil {
							asked = append(asked, "watch-list")
							if len(asked) > 1 {
								return watchList(w, "20", state(t, "ns", "a", "u-a", 19)), nil
							}
							return watchList(&breaking{w, broken}, "10", state(t, "ns", "a", "u-a", 5)), nil
						}
						asked = append(asked, "watch "+o.ResourceVersion)
						switch {
						case o.ResourceVersion == "10":
							return fails(tt.message), nil
						case o.ResourceVersion == "20":
							return w, nil
						case tt.tooFast:
							return fails("too old resource version: 12 (14)"), nil
						}
						w.Modify(state(t, "ns", "a", "u-a", 13))
						return w, nil
					},
				}
				i = New(Config{Source: Source{Resource: configMaps}, ListWatch: lw})
				j := &journal{}
				i.AddEventHandler(j)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.Run(ctx) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				expect(t, j, "add ns/a(u-a)@5 initial=true", "synced 10, 1 objects")
				close(broken)
				time.Sleep(time.Minute)
				synctest.Wait()
				expect(t, j, tt.lines...)
				if diff := gocmp.Diff(tt.asked, asked); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				cancel()
				do(t, <-ended)
			})
		})
	}
}

// watchList returns a watch-list: w after objects and the bookmark that ends the initial events.
func watchList(w watch.Interface, resourceVersion string, objects ...*object.Object) watch.Interface {
	bookmark, err := object.New(fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:"true"}}}`,
		resourceVersion, metav1.InitialEventsAnnotationKey))
	if err != nil {
		panic(err)
	}
	p := &prefixedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	p.group.Go(func() {
		defer close(p.events)
		send := func(e watch.Event) bool {
			select {
			case p.events <- e:
				return true
			case <-p.stopped:
				return false
			}
		}
		for _, o := range objects {
			if !send(watch.Event{Type: watch.Added, Object: o}) {
				return
			}
		}
		if !send(watch.Event{Type: watch.Bookmark, Object: bookmark}) {
			return
		}
		for e := range w.ResultChan() {
			if !send(e) {
				return
			}
		}
	})
	return p
}

// prefixedWatch is a watch with events in front.
type prefixedWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
	group   sync.WaitGroup
}

func (p *prefixedWatch) ResultChan() <-chan watch.Event { return p.events }

// Stop ends the watch and waits for its goroutine.
func (p *prefixedWatch) Stop() {
	p.once.Do(func() { close(p.stopped) })
	p.Interface.Stop()
	p.group.Wait()
}
