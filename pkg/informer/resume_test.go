package informer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Without watch-lists an informer has resumed before its watch is open. What it lags behind by comes with the watch, so
// that the grace begins there, however long it takes to open it. If the watch ends within the grace, the grace begins
// again with the next watch.
func TestGraceBeginsWithTheWatch(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			const away = time.Minute
			first := breaks
			c := Config{
				Source: Source{
					Resource: configMaps,
				},
				NoWatchList: true,
				Known:       []*object.Object{state(t, "ns", "a", "u", 4)},
				ResumeAt:    "10",
				Backoff:     wait.Backoff{Duration: time.Second, Factor: 1, Steps: 1000, Cap: time.Second},
				ListWatch: &cache.ListWatch{
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						w := watch.NewFake()
						switch {
						case first:
							first = false
							time.AfterFunc(ResumeGrace-time.Second, w.Stop)
						case time.Since(began) < away:
							return nil, unreachableError{errors.New("away")}
						}
						return w, nil
					},
				},
			}
			i, j := New(c), &journal{}
			i.AddEventHandler(j)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- i.Run(ctx) }()
			synctest.Wait()
			if !i.HasSynced() {
				t.Error("it has not resumed")
			}
			if err := (&retold{j, 1 << 30}).restate(t.Context(), i); err != nil {
				t.Error(err)
			}
			if waited := time.Since(began); waited < away+ResumeGrace {
				t.Errorf("restated after %s, the watch was opened after %s", waited, away)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// The time for which a handler blocks does not count as grace, because the watch brings nothing meanwhile.
func TestGraceWhileAHandlerBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(Config{Source: Source{Resource: configMaps}, ResumeAt: "10"})
		i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { time.Sleep(time.Minute) }})
		do(t, (*store)(i).Replace(nil, "10"))
		i.watchOpened()
		do(t, (*store)(i).Add(state(t, "ns", "a", "u", 11)))
		(*store)(i).UpdateResourceVersion("11")
		if i.CaughtUp() {
			t.Error("it counts as caught up after its first change")
		}
		time.Sleep(ResumeGrace)
		if !i.CaughtUp() {
			t.Error("it does not count as caught up after the grace")
		}
	})
}

// A list from a server's cache may be older than the known objects: objects that are missing in the list would be sent
// as deleted. So an informer that knows objects requests the current state.
func TestAListIsNotOlderThanWhatIsKnown(t *testing.T) {
	refuses := func(context.Context, string) error { return ErrFutureVersion }
	for _, tt := range []struct {
		name        string
		config      Config
		predecessor *Informer
		want        string
	}{
		{"nothing is known", Config{}, nil, "0"},
		{"nothing is known, and there are no watch-lists", Config{NoWatchList: true}, nil, "0"},
		{"the checkpoint is refused", Config{ResumeAt: "10", Probe: refuses}, nil, ""},
		{"the checkpoint is refused, and there are no watch-lists", Config{NoWatchList: true, ResumeAt: "10", Probe: refuses}, nil, ""},
		{"the checkpoint is unreachable, without a probe", Config{ResumeAt: Unreachable}, nil, ""},
		{"that, and there are no watch-lists", Config{NoWatchList: true, ResumeAt: Unreachable}, nil, ""},
		{"a predecessor ended", Config{NoWatchList: true}, New(Config{ResumeAt: "10"}), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan string, 1)
				tt.config.Source.Resource = configMaps
				tt.config.ListWatch = &cache.ListWatch{
					ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
						asked <- options.ResourceVersion
						return &object.List{ListMeta: metav1.ListMeta{ResourceVersion: "8"}}, nil
					},
					WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
						if options.SendInitialEvents != nil {
							return nil, apierrors.NewInvalid(schema.GroupKind{}, "sendInitialEvents", nil) // as of an older server
						}
						return watch.NewFake(), nil
					},
				}
				i := New(tt.config)
				if tt.predecessor != nil {
					i.Succeed(tt.predecessor)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.Run(ctx) }()
				if got := <-asked; got != tt.want {
					t.Errorf("listed at resourceVersion %q, want %q", got, tt.want)
				}
				cancel()
				do(t, <-ended)
			})
		})
	}
}
