package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"

	"github.com/deltabridge/deltabridge/internal/rbac"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// maxParallel is the maximum number of resources that are checked concurrently.
const maxParallel = 8

// checkWatches checks every watched resource and the optional permissions.
func (e *examination) checkWatches(ctx context.Context, disco discovery.DiscoveryInterfaceWithContext) {
	discovering, cancel := context.WithTimeout(ctx, 3*e.Step)
	defer cancel()
	preview, err := fleet.New(fleet.Config{Scopes: e.Scopes, Client: e.client, Discovery: disco}).Preview(discovering)
	if err != nil {
		e.fail("discover", "", err, "check the API server's log; the ClusterRole system:discovery grants discovery")
		return
	}
	e.ok("discover", "", counted(len(preview.Watched), "resource")+" to watch")
	for _, problem := range preview.Problems {
		e.fail(
			"discover",
			"",
			errors.New(problem),
			"correct `watch` in the configuration, or install what defines the resource",
		)
	}
	for gv, err := range preview.Silent {
		e.warn("discover", gv.String(), "the aggregated API server does not answer: "+err.Error(),
			"fix or remove the APIService v1."+gv.Group)
	}
	e.checkOwnRights(ctx)
	found := make([]diagnose.Finding, len(preview.Watched))
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for n, w := range preview.Watched {
		e.namespaced[w.Resource] = w.Namespaced
		group.Go(func() error {
			found[n] = e.checkWatched(ctx, &w)
			return nil
		})
	}
	_ = group.Wait() // the findings contain the errors
	e.add(found...)
}

// checkOwnRights checks the optional permissions. With these permissions, the bridge detects some changes in the
// cluster sooner.
func (e *examination) checkOwnRights(ctx context.Context) {
	effects := map[string]string{
		"customresourcedefinitions": "new custom resources are noticed after 30 seconds, not at once",
		"apiservices":               "the bridge does not recognize aggregated APIs",
	}
	for _, rule := range rbac.Own(e.Config.Watch) {
		resource := rule.Resources[0]
		if effects[resource] == "" {
			continue // readClusterUID has already checked this permission
		}
		gvr := schema.GroupVersionResource{Group: rule.APIGroups[0], Version: "v1", Resource: resource}
		forbidden, _, err := e.try(ctx, &fleet.Watched{Resource: gvr}, rule.Verbs)
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			e.warn(sinks.StepAuthorize, resource, fmt.Sprintf("%v: %s", err, effects[resource]), checkLog)
		case len(forbidden) > 0:
			e.warn(sinks.StepAuthorize, resource, fmt.Sprintf("%s: %s", notAllowed(forbidden), effects[resource]), rbacRemedy)
		default:
			e.ok(sinks.StepAuthorize, resource, strings.Join(rule.Verbs, ", "))
		}
	}
}

const checkLog = "check the API server's log"

func notAllowed(verbs []string) string { return strings.Join(verbs, ", ") + " is not allowed" }

// checkWatched checks one resource with the requests of an informer.
func (e *examination) checkWatched(ctx context.Context, w *fleet.Watched) diagnose.Finding {
	f := diagnose.Finding{Step: "watch", Target: w.Resource.GroupResource().String()}
	if w.Namespace != "" {
		f.Target += " in " + w.Namespace
	}
	forbidden, found, err := e.try(ctx, w, []string{"get", "list", "watch"})
	if len(forbidden) > 0 {
		f.Remedy = rbacRemedy
	}
	switch {
	case err != nil:
		f.Err, f.Remedy = err, checkLog
		if apierrors.IsBadRequest(err) {
			f.Remedy = "correct labelSelector or fieldSelector: the API server supports only a few fields of each resource"
		}
	case len(forbidden) == 0:
		f.Detail = strings.Join(found, "; ")
	case slices.Equal(forbidden, []string{"get"}):
		f.Warn, f.Detail = true, notAllowed(forbidden)+", so the bridge detects late that etcd was restored from a backup"
	case w.Named:
		f.Err = errors.New(notAllowed(forbidden))
	case w.Auxiliary:
		f.Warn, f.Detail = true, notAllowed(forbidden)+": a sink's `enrich` will lack it"
	default: // the bridge runs without the resource and becomes ready
		f.Warn, f.Detail = true, notAllowed(forbidden)+": it will be missing"
		f.Remedy += ", or exclude it"
	}
	return f
}

// try sends the requests of an informer. It returns the forbidden verbs and the details that the successful requests
// returned.
func (e *examination) try(
	ctx context.Context,
	w *fleet.Watched,
	verbs []string,
) (forbidden, found []string, err error) {
	requests := map[string]func(context.Context, *fleet.Watched) (string, error){
		"get": e.getProbe, "list": e.countObjects, "watch": e.openWatch,
	}
	for _, verb := range verbs {
		limited, cancel := context.WithTimeout(ctx, e.Step)
		detail, err := requests[verb](limited, w)
		cancel()
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, verb)
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", verb, err)
		case detail != "":
			found = append(found, detail)
		}
	}
	return forbidden, found, nil
}

// getProbe requests the same object that the bridge requests to find out whether the cluster has reached a
// resourceVersion.
func (e *examination) getProbe(ctx context.Context, w *fleet.Watched) (string, error) {
	namespace := w.Namespace
	if w.Namespaced && namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	err := e.client.Get().
		AbsPath(informer.ResourcePath(w.Resource, namespace), informer.ProbeName).
		MaxRetries(0).
		Do(ctx).
		Error()
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return "", nil
	}
	return "", err
}

func (e *examination) listWatch(w *fleet.Watched, fields string) *informer.ListerWatcher {
	if w.FieldSelector != "" && fields != "" {
		fields = "," + fields
	}
	return informer.ListWatch(e.client, w.Resource, w.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = w.LabelSelector, w.FieldSelector+fields
	})
}

// countObjects lists one object and returns the total number of objects as text.
func (e *examination) countObjects(ctx context.Context, w *fleet.Watched) (string, error) {
	answer, err := e.listWatch(w, "").ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	list := answer.(*object.List)
	count := len(list.Items)
	if list.RemainingItemCount != nil {
		count += int(*list.RemainingItemCount)
	} else if list.Continue != "" { // the API server does not count the remaining objects if there are selectors
		return "some objects", nil
	}
	return counted(count, "object"), nil
}

// openWatch opens the same kind of watch as the bridge. It returns a description of the watch that the API server
// supports.
func (e *examination) openWatch(ctx context.Context, w *fleet.Watched) (string, error) {
	if !w.Aggregated {
		event, err := e.firstEvent(ctx, w, e.Step, metav1.ListOptions{
			AllowWatchBookmarks:  true,
			SendInitialEvents:    new(true),
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err == nil && event != watch.Bookmark {
			err = errors.New("the bookmark at the end of the initial list did not arrive")
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			return "watch-list with bookmarks", err
		}
	}
	_, err := e.firstEvent(ctx, w, soon, metav1.ListOptions{TimeoutSeconds: new(int64(1))})
	return "watch, without watch-lists", err
}

// soon is the maximum time to wait for the rejection of a watch that the API server has accepted.
const soon = 2 * time.Second

// firstEvent opens a watch for a name that does not exist, so the API server sends only bookmarks and errors. It
// returns the type of the first event, or an error if the first event is an error. The type is empty if no event
// arrives within the time limit.
func (e *examination) firstEvent(
	ctx context.Context,
	w *fleet.Watched,
	limit time.Duration,
	options metav1.ListOptions,
) (watch.EventType, error) {
	stream, err := e.listWatch(w, "metadata.name="+informer.ProbeName).WatchWithContext(ctx, options)
	if err != nil {
		return "", err
	}
	defer stream.Stop()
	select {
	case event := <-stream.ResultChan():
		if event.Type == watch.Error {
			return "", apierrors.FromObject(event.Object)
		}
		return event.Type, nil
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return "", nil
}

// tryToResume opens a watch from a resourceVersion. It returns an error if the API server no longer has the changes
// after this resourceVersion.
func (e *examination) tryToResume(ctx context.Context, w *fleet.Watched, resourceVersion string) error {
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	if err := informer.NewProbe(e.client, w.Resource, w.Namespace, w.Namespaced)(ctx, resourceVersion); err != nil {
		return err
	}
	_, err := e.firstEvent(
		ctx,
		w,
		soon,
		metav1.ListOptions{ResourceVersion: resourceVersion, TimeoutSeconds: new(int64(1))},
	)
	return err
}
