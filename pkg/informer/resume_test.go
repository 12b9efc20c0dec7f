package informer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Without watch-lists an informer has resumed before its watch is open. What it lags behind by comes with the watch, so that the
// grace begins there, however long it takes to open it.
func TestGraceBeginsWithTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		const away = time.Minute
		c := Config{
			Resource: configMaps, NoWatchList: true, Known: []*object.Object{state(t, "ns", "a", "u", 4)}, ResumeAt: "10",
			Backoff: wait.Backoff{Duration: time.Second, Factor: 1, Steps: 1000, Cap: time.Second},
			ListWatch: &cache.ListWatch{
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					if time.Since(began) < away {
						return nil, unreachableError{errors.New("away")}
					}
					return watch.NewFake(), nil
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
		if waited := time.Since(began); waited < away+resumeGrace {
			t.Errorf("restated after %s, the watch was opened after %s", waited, away)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
