package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/assemble"
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
func (e *examination) checkWatches(ctx context.Context) {
	discovering, cancel := context.WithTimeout(ctx, 3*stepTimeout)
	defer cancel()
	watched := fleet.New(fleet.Config{Scopes: assemble.Watched(e.cfg), Client: e.client})
	preview, err := watched.Preview(discovering)
	if err != nil {
		e.fail("discover", "", err, "check the API server's log; the ClusterRole system:discovery grants discovery")
		return
	}
	e.ok("discover", "", fmt.Sprintf("%d resources to watch", len(preview.Watched)))
	for _, problem := range preview.Problems {
		e.fail("discover", "", errors.New(problem), "correct `watch` in the configuration, or install the resource")
	}
	for gv, err := range preview.Silent {
		e.warn("discover", gv.String(), "the aggregated API server does not answer: "+err.Error(),
			"fix or remove the APIService v1."+gv.Group)
	}
	e.checkOwnRights(ctx)
	e.checkNamespaces(ctx)
	found := make([]diagnose.Finding, len(preview.Watched))
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for n, w := range preview.Watched {
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
	for _, rule := range rbac.Own(e.cfg.Watch) {
		resource := rule.Resources[0]
		if effects[resource] == "" {
			continue // readClusterUID has already checked this permission
		}
		gvr := schema.GroupVersionResource{Group: rule.APIGroups[0], Version: "v1", Resource: resource}
		forbidden, _, err := e.try(ctx, &fleet.Watched{Source: informer.Source{Resource: gvr}}, rule.Verbs)
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

// checkNamespaces checks whether the bridge can follow the labels of namespaces, if a filter requires them.
func (e *examination) checkNamespaces(ctx context.Context) {
	if !e.cfg.SelectsNamespaces() {
		return
	}
	const target, key = "namespaces", "namespaceSelector"
	gvr := schema.GroupVersionResource{Version: "v1", Resource: target}
	forbidden, found, err := e.try(ctx, &fleet.Watched{Source: informer.Source{Resource: gvr}}, []string{"list", "watch"})
	switch {
	case err != nil:
		e.fail("watch", target, fmt.Errorf("%s: %w", key, err), checkLog)
	case len(forbidden) > 0:
		e.fail("watch", target, errors.New(key+": "+notAllowed(forbidden)), rbacRemedy)
	default:
		e.ok("watch", target, key+": "+found)
	}
}

const checkLog = "check the API server's log"

func notAllowed(verbs []string) string { return "no permission to " + strings.Join(verbs, ", ") }

// checkWatched checks one resource with the requests of an informer.
func (e *examination) checkWatched(ctx context.Context, w *fleet.Watched) diagnose.Finding {
	f := diagnose.Finding{Step: "watch", Target: w.Resource.GroupResource().String()}
	if w.Namespace != "" {
		f.Target += " in " + w.Namespace
	}
	forbidden, objects, err := e.try(ctx, w, []string{"get", "list", "watch"})
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
		f.Detail = objects
	case slices.Equal(forbidden, []string{"get"}):
		f.Warn, f.Detail = true, notAllowed(forbidden)+": the bridge detects only later that etcd was restored from a backup"
	case w.Named:
		f.Err = errors.New(notAllowed(forbidden))
	case w.Auxiliary:
		f.Warn, f.Detail = true, notAllowed(forbidden)+": events will not be enriched with this resource"
	default: // the bridge runs without the resource and becomes ready
		f.Warn, f.Detail = true, notAllowed(forbidden)+": the bridge will not send its events"
		f.Remedy += ", or exclude it"
	}
	return f
}

// try sends the requests of an informer. It returns the forbidden verbs and, in words, the number of objects.
func (e *examination) try(
	ctx context.Context, w *fleet.Watched, verbs []string,
) (forbidden []string, objects string, err error) {
	for _, verb := range verbs {
		limited, cancel := context.WithTimeout(ctx, stepTimeout)
		switch verb {
		case "get":
			err = e.getProbe(limited, w)
		case "list":
			objects, err = e.countObjects(limited, w)
		case "watch":
			err = e.openWatch(limited, w)
		}
		cancel()
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, verb)
		case err != nil:
			return nil, "", fmt.Errorf("%s: %w", verb, err)
		}
	}
	return forbidden, objects, nil
}

// getProbe requests the same object that the bridge requests to find out whether the cluster has reached a
// resourceVersion.
func (e *examination) getProbe(ctx context.Context, w *fleet.Watched) error {
	namespace := w.Namespace
	if w.Namespaced {
		namespace = cmp.Or(namespace, metav1.NamespaceDefault)
	}
	path := informer.ResourcePath(w.Resource, namespace)
	err := e.client.Get().AbsPath(path, informer.ProbeName).MaxRetries(0).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}

// countObjects lists an object, and returns the number of all in words.
func (e *examination) countObjects(ctx context.Context, w *fleet.Watched) (string, error) {
	answer, err := e.listWatch(w, "").ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	list := answer.(*object.List)
	n, more := int64(len(list.Items)), list.RemainingItemCount
	switch {
	case more != nil:
		n += *more
	case list.Continue != "": // the API server does not count the remaining objects if there are selectors
		return fmt.Sprintf("more than %d objects", n), nil
	}
	return fmt.Sprintf("%d objects", n), nil
}

// openWatch opens a watch for a name that does not exist, and closes it at once.
func (e *examination) openWatch(ctx context.Context, w *fleet.Watched) error {
	stream, err := e.listWatch(w, "metadata.name="+informer.ProbeName).WatchWithContext(ctx, metav1.ListOptions{})
	if err == nil {
		stream.Stop()
	}
	return err
}

func (e *examination) listWatch(w *fleet.Watched, selector string) *informer.ListerWatcher {
	if w.FieldSelector != "" && selector != "" {
		selector = "," + selector
	}
	source := w.Source
	source.FieldSelector += selector
	return informer.ListWatch(e.client, source)
}
