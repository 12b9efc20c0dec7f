package evaluate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
)

// fieldSelector evaluates a field selector of `watch`, as the API server does. If it is nil, all objects are selected.
type fieldSelector func(selector string, s state) (bool, error)

// explainWatch adds to a report whether the entries of `watch` cover the object.
func (r *Report) explainWatch(cfg *config.Config, c *change, selectsFields fieldSelector) error {
	scopes := assemble.Scopes(cfg)
	for n := range cfg.Watch {
		w := &cfg.Watch[n]
		entry := Watch{Entry: n, Text: strings.Join(w.Resources, ", ")}
		if len(w.Exclude) > 0 {
			entry.Text += " without " + strings.Join(w.Exclude, ", ")
		}
		if len(w.Namespaces) > 0 {
			entry.Text += " in " + strings.Join(w.Namespaces, ", ")
		}
		for _, s := range []state{c.old, c.now} {
			if s == nil {
				continue
			}
			var err error
			if entry.Covers, entry.Why, err = covers(&scopes[n], c, s, selectsFields); err != nil {
				return fmt.Errorf("watch[%d]: %w", n, err)
			}
			r.Watched = r.Watched || entry.Covers
		}
		r.Watch = append(r.Watch, entry)
	}
	return nil
}

// covers reports whether an entry of `watch` covers a state, and returns the reason.
func covers(scope *fleet.Scope, c *change, s state, selectsFields fieldSelector) (covers bool, why string, err error) {
	version, within := scope.Covers(c.served, s.GetNamespace())
	switch {
	case version == "":
		return false, "does not include " + event.GroupResource(c.resource), nil
	case !within && !c.served.Namespaced:
		return false, `the object is cluster-scoped, and namespaces does not list ""`, nil
	case !within:
		return false, "does not include the namespace " + s.GetNamespace(), nil
	case scope.LabelSelector == "" && scope.FieldSelector == "":
		return true, "covers the object", nil
	}
	selector, err := labels.Parse(scope.LabelSelector)
	if err != nil {
		return false, "", err
	}
	text := "the selector " + strings.TrimSpace(scope.LabelSelector+" "+scope.FieldSelector)
	if covers = selector.Matches(labels.Set(s.GetLabels())); covers && scope.FieldSelector != "" {
		if selectsFields == nil {
			return true, "covers the object if the fieldSelector " + scope.FieldSelector +
				" selects it, which only the API server knows", nil
		}
		covers, err = selectsFields(scope.FieldSelector, s)
	}
	if covers {
		return true, text + " selects it", err
	}
	return false, text + " does not select it", err
}

// selectsFields is a fieldSelector for tests. An API server calculates few fields: all others have the name of a path
// in the object.
func selectsFields(selector string, s state) (bool, error) {
	byField, err := fields.ParseSelector(selector)
	if err != nil {
		return false, err
	}
	values := fields.Set{}
	for _, r := range byField.Requirements() {
		value, found, err := unstructured.NestedFieldNoCopy(s.Object, strings.Split(r.Field, ".")...)
		if found && err == nil {
			values[r.Field] = fmt.Sprint(value)
		}
	}
	return byField.Matches(values), nil
}
