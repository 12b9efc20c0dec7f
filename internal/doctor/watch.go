package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltabridge/deltabridge/internal/rbac"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// maxParallel limits how many resources are checked at the same time.
const maxParallel = 8

// checkWatches checks each watched resource and the optional rights.
func (e *examination) checkWatches(ctx context.Context) {
	set := fleet.New(fleet.Config{Scopes: e.Scopes, Client: e.api.client, Discovery: e.api.disco})
	discovering, cancel := context.WithTimeout(ctx, 3*e.Step)
	defer cancel()
	preview, err := set.Preview(discovering)
	if err != nil {
		e.fail("discover", "", err, "check the API server's log; the ClusterRole system:discovery grants discovery")
		return
	}
	e.ok("discover", "", counted(len(preview.Watched), "resource")+" to watch")
	for _, problem := range preview.Problems {
		e.fail("discover", "", errors.New(problem), "correct `watch` in the configuration, or install what defines the resource")
	}
	for gv, err := range preview.Silent {
		e.warn("discover", gv.String(), "the aggregated API server does not answer: "+err.Error(),
			"fix or remove the APIService v1."+gv.Group)
	}
	for _, w := range preview.Watched {
		e.namespaced[w.Resource] = w.Namespaced
	}
	e.checkOwnRights(ctx)
	found := make([]diagnose.Finding, len(preview.Watched))
	each(len(found), maxParallel, func(n int) { found[n] = e.checkWatched(ctx, &preview.Watched[n]) })
	e.add(found...)
}

// checkOwnRights checks the optional rights, with which the bridge detects some changes of the cluster sooner.
func (e *examination) checkOwnRights(ctx context.Context) {
	for _, rule := range rbac.Own(e.Config.Watch) {
		resource := rule.Resources[0]
		if resource == "namespaces" {
			continue // readClusterUID has checked it
		}
		var missing []string
		for _, verb := range rule.Verbs {
			attributes := authorizationv1.ResourceAttributes{Verb: verb, Group: rule.APIGroups[0], Resource: resource}
			if allowed, err := e.isAllowed(ctx, attributes); err != nil || !allowed {
				missing = append(missing, verb)
			}
		}
		effect := map[string]string{
			"customresourcedefinitions": "new custom resources are noticed after 30 seconds, not at once",
			"apiservices":               "the bridge does not recognize aggregated APIs",
		}[resource]
		if len(missing) > 0 {
			e.warn(sinks.StepAuthorize, resource, fmt.Sprintf("%s is not allowed: %s", strings.Join(missing, ", "), effect), rbacRemedy)
			continue
		}
		e.ok(sinks.StepAuthorize, resource, strings.Join(rule.Verbs, ", "))
	}
}

func (e *examination) isAllowed(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	err := e.post(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review, &review)
	return review.Status.Allowed, err
}

// checkWatched checks one resource: the rights, a list of one object, and a watch.
func (e *examination) checkWatched(ctx context.Context, w *fleet.Watched) diagnose.Finding {
	f := diagnose.Finding{Step: "watch", Target: w.Resource.GroupResource().String()}
	if w.Namespace != "" {
		f.Target += " in " + w.Namespace
	}
	var missing []string
	for _, verb := range []string{"get", "list", "watch"} {
		attributes := authorizationv1.ResourceAttributes{Verb: verb, Group: w.Resource.Group, Resource: w.Resource.Resource, Namespace: w.Namespace}
		if verb == "get" {
			attributes.Name = informer.ProbeName
		}
		allowed, err := e.isAllowed(ctx, attributes)
		if err != nil {
			f.Err, f.Remedy = err, "check the API server's log"
			return f
		}
		if !allowed {
			missing = append(missing, verb)
		}
	}
	switch {
	case len(missing) == 1 && missing[0] == "get":
		f.Warn, f.Remedy = true, rbacRemedy
		f.Detail = "get is not allowed, so the bridge detects late that etcd was restored from a backup; "
	case len(missing) > 0:
		err := fmt.Errorf("%s is not allowed", strings.Join(missing, ", "))
		f.Remedy = rbacRemedy
		switch {
		case w.Named:
			f.Err = err
		case w.Auxiliary:
			f.Warn, f.Detail = true, err.Error()+": a sink's `enrich` will lack it"
		default: // the bridge runs without the resource and reports that it is ready
			f.Warn, f.Detail = true, err.Error()+": it will be missing"
			f.Remedy += ", or exclude it"
		}
		return f
	}
	objects, err := e.countObjects(ctx, w)
	if err != nil {
		f.Err, f.Detail, f.Remedy = err, "", selectorRemedy(err)
		return f
	}
	opened, err := e.openWatch(ctx, w)
	if err != nil {
		f.Err, f.Detail, f.Remedy = err, "", selectorRemedy(err)
		return f
	}
	f.Detail += objects + "; " + opened
	return f
}

func selectorRemedy(err error) string {
	if apierrors.IsBadRequest(err) {
		return "correct labelSelector or fieldSelector: the API server supports only a few fields of each resource"
	}
	return "check the API server's log"
}

func (e *examination) listWatch(w *fleet.Watched, fields string) *informer.ListerWatcher {
	if w.FieldSelector != "" && fields != "" {
		fields = "," + fields
	}
	return informer.ListWatch(e.api.client, w.Resource, w.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = w.LabelSelector, w.FieldSelector+fields
	})
}

// countObjects lists one object and returns how many there are, as text.
func (e *examination) countObjects(ctx context.Context, w *fleet.Watched) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	answer, err := e.listWatch(w, "").ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	list := answer.(*object.List)
	count := int64(len(list.Items))
	if list.RemainingItemCount != nil {
		count += *list.RemainingItemCount
	} else if list.Continue != "" { // with selectors, the API server does not count
		return "some objects", nil
	}
	return counted(int(count), "object"), nil
}

// openWatch opens the same kind of watch as the bridge, but for a name that does not exist, so that the API server
// sends only the bookmark that ends the initial list. It returns what the API server supports.
func (e *examination) openWatch(ctx context.Context, w *fleet.Watched) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	probe := e.listWatch(w, "metadata.name="+informer.ProbeName)
	options := metav1.ListOptions{AllowWatchBookmarks: true}
	if !w.Aggregated {
		options.SendInitialEvents, options.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
		stream, err := probe.WatchWithContext(ctx, options)
		if err == nil {
			defer stream.Stop()
			return "watch-list with bookmarks", firstBookmark(ctx, stream)
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			return "", fmt.Errorf("watch: %w", err)
		}
		options.SendInitialEvents, options.ResourceVersionMatch = nil, ""
	}
	stream, err := probe.WatchWithContext(ctx, options)
	if err != nil {
		return "", fmt.Errorf("watch: %w", err)
	}
	stream.Stop()
	return "watch, without watch-lists", nil
}

func firstBookmark(ctx context.Context, stream watch.Interface) error {
	for {
		select {
		case event, open := <-stream.ResultChan():
			switch {
			case !open:
				return errors.New("watch: it ended before the bookmark at the end of the initial list")
			case event.Type == watch.Error:
				return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			case event.Type == watch.Bookmark:
				return nil
			}
		case <-ctx.Done():
			return errors.New("watch: timed out waiting for the bookmark at the end of the initial list")
		}
	}
}

// tryToResume opens a watch from a resourceVersion. It returns an error if the API server no longer has the changes
// since then.
func (e *examination) tryToResume(ctx context.Context, w *fleet.Watched, resourceVersion string) error {
	probe := informer.NewProbe(e.api.client, w.Resource, w.Namespace, w.Namespaced)
	ctx, cancel := context.WithTimeout(ctx, e.Step)
	defer cancel()
	if err := probe(ctx, resourceVersion); err != nil {
		return err
	}
	stream, err := e.listWatch(w, "metadata.name="+informer.ProbeName).
		WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: resourceVersion, TimeoutSeconds: new(int64(1))})
	if err != nil {
		return err
	}
	defer stream.Stop()
	soon := time.NewTimer(2 * time.Second)
	defer soon.Stop()
	select {
	case event, open := <-stream.ResultChan():
		if open && event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
	case <-soon.C:
	}
	return nil
}
