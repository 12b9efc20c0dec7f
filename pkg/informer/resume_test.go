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
			i.SetBackoff(wait.Backoff{Duration: time.Second, Factor: 1, Steps: 1000, Cap: time.Second})
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
		w := i.watchOpened(t.Context(), watch.NewFake())
		defer w.Stop()
		do(t, (*store)(i).Add(state(t, "ns", "a", "u", 11)))
		(*store)(i).UpdateResourceVersion("11")
		if i.CaughtUp() {
			t.Error("it counts as caught up after its first change")
		}
		time.Sleep(ResumeGrace + graceTick)
		if !i.CaughtUp() {
			t.Error("it does not count as caught up after the grace")
		}
	})
}

// late is a handler that is behind until the informer has reached a position.
type late struct {
	journal

	until    string
	isBehind bool
}

func (l *late) OnPosition(at string) { l.isBehind = l.isBehind && at != l.until }
func (l *late) OnCaughtUp()          { l.note("caught up") }
func (l *late) IsBehind() bool       { return l.isBehind }

// The grace does not pass while nothing runs. The test prevents it by holding the lock, as a suspended process would.
func TestGraceWhileNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(Config{Source: Source{Resource: configMaps}, ResumeAt: "10"})
		do(t, (*store)(i).Replace(nil, "10"))
		w := i.watchOpened(t.Context(), watch.NewFake())
		defer w.Stop()
		time.Sleep(ResumeGrace / 2)
		i.mu.Lock()
		time.Sleep(time.Minute)
		i.mu.Unlock()
		time.Sleep(ResumeGrace / 4)
		if i.CaughtUp() {
			t.Error("it counts as caught up because time has passed")
		}
		time.Sleep(ResumeGrace / 2)
		if !i.CaughtUp() {
			t.Error("it does not count as caught up after the grace")
		}
	})
}

// A handler that was ahead of the informer's position gets the whole grace from there on.
func TestGraceBeginsAgainForAHandlerThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(Config{Source: Source{Resource: configMaps}, ResumeAt: "10"})
		h := &late{isBehind: true, until: "12"}
		i.AddEventHandler(h)
		do(t, (*store)(i).Replace(nil, "10"))
		w := i.watchOpened(t.Context(), watch.NewFake())
		defer w.Stop()
		for _, position := range []string{"11", "12", "13"} {
			time.Sleep(ResumeGrace - time.Second)
			(*store)(i).UpdateResourceVersion(position)
			if i.CaughtUp() {
				t.Errorf("it counts as caught up at %s", position)
			}
		}
		time.Sleep(time.Second + graceTick)
		if !i.CaughtUp() {
			t.Error("it does not count as caught up after the grace")
		}
		expect(t, &h.journal, "caught up")
	})
}

// The API server cannot continue the watch of the checkpoint, and the informer lists the state at the beginning of the
// server's history. The watch from there brings what the previous process may have sent.
func TestGraceAfterAListOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &late{}
		var i *Informer
		i = New(Config{Source: Source{Resource: configMaps}, ResumeAt: "10", ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &object.List{ListMeta: metav1.ListMeta{ResourceVersion: "12"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.ResourceVersion == "12" {
					return watch.NewFake(), nil
				}
				err := apierrors.NewResourceExpired("too old resource version: 10 (12)")
				i.watchFailed(err) // as a ListerWatcher does
				return nil, err
			},
		}})
		i.AddEventHandler(h)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- i.Run(ctx) }()
		time.Sleep(ResumeGrace - time.Second)
		if got := i.Status().ResourceVersion; got != "12" || i.CaughtUp() {
			t.Errorf("at %s, caught up: %t", got, i.CaughtUp())
		}
		time.Sleep(2 * time.Second)
		if !i.CaughtUp() {
			t.Error("it does not count as caught up after the grace")
		}
		expect(t, &h.journal, "gap 10..12", "caught up")
		cancel()
		do(t, <-ended)
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
