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

// atOnce is how many resources are tried at the same time.
const atOnce = 8

// watches tries each resource that is watched, and what the bridge wants to know besides.
func (e *examination) watches(ctx context.Context) {
	set := fleet.New(fleet.Config{Scopes: e.Scopes, Client: e.api.client, Discovery: e.api.disco})
	discovering, cancel := context.WithTimeout(ctx, 3*e.Step)
	defer cancel()
	preview, err := set.Preview(discovering)
	if err != nil {
		e.fail("discover", "", err, "look at the API server's log; discovery is granted by system:discovery")
		return
	}
	e.ok("discover", "", counted(len(preview.Watched), "resource")+" to watch")
	for _, problem := range preview.Problems {
		e.fail("discover", "", errors.New(problem), "correct `watch` in the configuration, or install what defines the resource")
	}
	for gv, err := range preview.Silent {
		e.warn("discover", gv.String(), "the API server behind it does not answer: "+err.Error(), "mend or remove the APIService v1."+gv.Group)
	}
	for _, w := range preview.Watched {
		e.namespaced[w.Resource] = w.Namespaced
	}
	e.own(ctx)
	found := make([]diagnose.Finding, len(preview.Watched))
	each(len(found), atOnce, func(n int) { found[n] = e.watched(ctx, &preview.Watched[n]) })
	e.add(found...)
}

// own asks for what makes the bridge notice things sooner.
func (e *examination) own(ctx context.Context) {
	for _, rule := range rbac.Own(e.Config.Watch) {
		resource := rule.Resources[0]
		if resource == "namespaces" {
			continue // was read
		}
		var missing []string
		for _, verb := range rule.Verbs {
			if allowed, err := e.may(ctx, authorizationv1.ResourceAttributes{Verb: verb, Group: rule.APIGroups[0], Resource: resource}); err != nil || !allowed {
				missing = append(missing, verb)
			}
		}
		costs := map[string]string{
			"customresourcedefinitions": "new custom resources are noticed after 30 seconds, not at once",
			"apiservices":               "aggregated APIs are not told from others",
		}[resource]
		if len(missing) > 0 {
			e.warn(sinks.StepAuthorize, resource, fmt.Sprintf("%s is not allowed: %s", strings.Join(missing, ", "), costs), rbacRemedy)
			continue
		}
		e.ok(sinks.StepAuthorize, resource, strings.Join(rule.Verbs, ", "))
	}
}

func (e *examination) may(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	err := e.post(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review, &review)
	return review.Status.Allowed, err
}

// watched tries one resource: the rights, a list of one object, and a watch.
func (e *examination) watched(ctx context.Context, w *fleet.Watched) diagnose.Finding {
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
		allowed, err := e.may(ctx, attributes)
		if err != nil {
			f.Err, f.Remedy = err, "look at the API server's log"
			return f
		}
		if !allowed {
			missing = append(missing, verb)
		}
	}
	switch {
	case len(missing) == 1 && missing[0] == "get":
		f.Warn, f.Remedy = true, rbacRemedy
		f.Detail = "get is not allowed: that etcd was restored from a backup is noticed late; "
	case len(missing) > 0:
		err := fmt.Errorf("%s is not allowed", strings.Join(missing, ", "))
		f.Remedy = rbacRemedy
		switch {
		case w.Named:
			f.Err = err
		case w.Auxiliary:
			f.Warn, f.Detail = true, err.Error()+": a sink's `enrich` will lack it"
		default: // the bridge goes without it, and is ready
			f.Warn, f.Detail = true, err.Error()+": it will be missing"
			f.Remedy += ", or exclude it"
		}
		return f
	}
	objects, err := e.list(ctx, w)
	if err != nil {
		f.Err, f.Detail, f.Remedy = err, "", selectorRemedy(err)
		return f
	}
	opened, err := e.open(ctx, w)
	if err != nil {
		f.Err, f.Detail, f.Remedy = err, "", selectorRemedy(err)
		return f
	}
	f.Detail += objects + "; " + opened
	return f
}

func selectorRemedy(err error) string {
	if apierrors.IsBadRequest(err) {
		return "correct labelSelector or fieldSelector: an API server knows only a few fields for each resource"
	}
	return "look at the API server's log"
}

func (e *examination) listWatch(w *fleet.Watched, fields string) *informer.ListerWatcher {
	if w.FieldSelector != "" && fields != "" {
		fields = "," + fields
	}
	return informer.ListWatch(e.api.client, w.Resource, w.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = w.LabelSelector, w.FieldSelector+fields
	})
}

// list asks for one object, and says how many there are.
func (e *examination) list(ctx context.Context, w *fleet.Watched) (string, error) {
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
	} else if list.Continue != "" { // with selectors it is not counted
		return "some objects", nil
	}
	return counted(int(count), "object"), nil
}

// open opens the watch that the bridge would, for a name that nothing has, so that nothing is sent but the bookmark
// which ends the initial list.
func (e *examination) open(ctx context.Context, w *fleet.Watched) (string, error) {
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
				return errors.New("watch: it ended before the bookmark that ends the initial list")
			case event.Type == watch.Error:
				return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			case event.Type == watch.Bookmark:
				return nil
			}
		case <-ctx.Done():
			return errors.New("watch: the bookmark that ends the initial list did not come")
		}
	}
}

// reachesBack reports whether the API server's history still holds the changes since a resourceVersion.
func (e *examination) reachesBack(ctx context.Context, w *fleet.Watched, resourceVersion string) error {
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
