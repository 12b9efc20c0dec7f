package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// A list is passed on object by object as it is read, whether it comes in pages or as the beginning of a watch, and
// what follows it is not.
func TestObjectsOfAListArePassedOn(t *testing.T) {
	k := newKube(t)
	namespace := k.namespace()
	for n := range 5 {
		k.create(namespace, fmt.Sprintf("c-%d", n))
	}
	client, err := informer.NewClient(cluster.Shared(t).RESTConfig())
	observe.Must(t, err)
	lw := informer.ListWatch(client, informer.Source{Resource: configMaps, Namespace: namespace})
	var told []string
	refuse := errors.New("no more")
	var limit int
	lw.BeginList = func(context.Context) informer.EachFunc {
		told = append(told, "begin")
		return func(_ watch.EventType, o *object.Object) (*object.Object, error) {
			if limit--; limit < 0 {
				return nil, refuse
			}
			told = append(told, o.Name)
			return o, nil
		}
	}
	const all = "begin c-0 c-1 c-2 c-3 c-4"

	limit = 100
	options := metav1.ListOptions{Limit: 2}
	for {
		page, err := lw.ListWithContext(t.Context(), options)
		observe.Must(t, err)
		if options.Continue = page.(*object.List).Continue; options.Continue == "" {
			break
		}
	}
	if got := strings.Join(told, " "); got != all {
		t.Errorf("pages: %s", got)
	}

	told, limit = nil, 3
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, refuse) {
		t.Errorf("a list that can't be passed on: %v", err)
	}

	told, limit = nil, 100
	sendAll := true
	watchList := metav1.ListOptions{
		SendInitialEvents: &sendAll, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	w, err := lw.WatchWithContext(t.Context(), watchList)
	observe.Must(t, err)
	events := 0
	for e := range w.ResultChan() {
		if events++; e.Type == watch.Bookmark {
			break
		}
	}
	k.create(namespace, "later")
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Errorf("%s follows the list", e.Type)
	}
	w.Stop()
	for range w.ResultChan() { // until it has ended
	}
	if got := strings.Join(told, " "); got != all || events != 6 {
		t.Errorf("watch-list: %s, and %d events", got, events)
	}

	told, limit = nil, 2
	w, err = lw.WatchWithContext(t.Context(), watchList)
	observe.Must(t, err)
	events = 0
	for range w.ResultChan() {
		events++
	}
	if events != 2 {
		t.Errorf("%d events of a watch-list that can't be passed on", events)
	}
}
