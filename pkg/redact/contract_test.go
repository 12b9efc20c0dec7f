package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const password = "hunter2"

// shows reports whether the password is in a decoded value. Keys are not hidden.
func shows(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), shows)
	case []any:
		return slices.ContainsFunc(value, shows)
	}
	return strings.Contains(fmt.Sprint(value), password)
}

// FuzzRedact: wherever a Secret has a value in data, however odd its JSON is, the value is hidden or there is no result.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{
		`{"data":{"a":"%s"}}`, `{"DATA":["%s"]}`, `{"d\u0061ta":"%s"}`, `{"data":{"a":"x","b":"%s"},"data":1}`,
		`{"data":{"a" "%s"}}`, `{"data":{"a":"%s"]}`, `{"stringData":{"a":{"b":"%s"}}}`, ` {"data":"%s" } `, `{"data":%s}`,
	} {
		f.Add(seed)
	}
	r := New(testKey())
	o := mustObject(f, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"n","namespace":"s"}}`)
	f.Fuzz(func(t *testing.T, pattern string) {
		if strings.Count(pattern, "%s") != 1 || strings.Contains(pattern, password) {
			return
		}
		raw := []byte(strings.Replace(pattern, "%s", password, 1))
		got, err := r.Redact(secretsGVR(), o, raw)
		if err != nil {
			if strings.Contains(err.Error(), password) || got != nil {
				t.Fatalf("%s with %v", got, err)
			}
			return
		}
		var doc map[string]any
		_ = json.Unmarshal(got, &doc)
		for key, value := range doc {
			if (strings.EqualFold(key, "data") || strings.EqualFold(key, "stringData")) && shows(value) {
				t.Fatalf("%s became %s", raw, got)
			}
		}
		if again, err := r.Redact(secretsGVR(), o, got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%s became %s (%v)", got, again, err)
		}
	})
}

// What is not one JSON object is an error, which names the object but does not quote it.
func TestInvalidJSON(t *testing.T) {
	o := mustObject(t, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"n","namespace":"s"}}`)
	for _, raw := range []string{
		``, ` `, password, `"` + password + `"`, `["` + password + `"]`, `{"data":{"a":"` + password + `"}`, `{"data":{"a":"` + password,
		`{"data":1} {"data":"` + password + `"}`, `{"data":1,"` + password + `"}`, `{"data":1}}`, `{` + password + `:1}`,
	} {
		got, err := New(testKey()).Redact(secretsGVR(), o, []byte(raw))
		if got != nil || err == nil || err.Error() != "cannot redact secrets s/n: its JSON is not valid" {
			t.Errorf("%s: %s, %v", raw, got, err)
		}
	}
}

// Several rules apply together, each to its resources, and in addition to what is always hidden.
func TestRules(t *testing.T) {
	only := func(name string) func(schema.GroupVersionResource) bool {
		return func(gvr schema.GroupVersionResource) bool { return gvr.Resource == name }
	}
	r := New(testKey(),
		Rule{Paths: mustPaths(t, "spec.token")},
		Rule{Resources: only("secrets"), Paths: mustPaths(t, "metadata.labels.owner")},
		Rule{Resources: only("accounts"), Paths: mustPaths(t, "spec.pin", "spec.token.inner")},
	)
	const raw = `{"metadata":{"labels":{"owner":"x"}},"spec":{"token":{"inner":"x"},"pin":1},"data":{"a":"x"}}`
	for name, want := range map[string]string{
		"secrets":  `{"metadata":{"labels":{"owner":#}},"spec":{"token":{"inner":#},"pin":1},"data":{"a":#}}`,
		"accounts": `{"metadata":{"labels":{"owner":"x"}},"spec":{"token":{"inner":#},"pin":#},"data":{"a":"x"}}`,
		"pods":     `{"metadata":{"labels":{"owner":"x"}},"spec":{"token":{"inner":#},"pin":1},"data":{"a":"x"}}`,
	} {
		o := mustObject(t, raw)
		for range 2 { // a rule must not leave its paths behind for other resources
			got, err := r.Redact(resource("", "v1", name), o, o.Raw)
			if err != nil || shape(got) != want {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		}
	}
}

// One Redactor gives each goroutine the fingerprints that it gives alone.
func TestConcurrentUse(t *testing.T) {
	r := New(testKey(), Rule{Paths: mustPaths(t, "spec")})
	redact := func(n int) string {
		o := mustObject(t, fmt.Sprintf(`{"kind":"Account","metadata":{"name":"n%d"},"spec":{"a":"x","b":[%d,"y"]}}`, n, n))
		got, err := r.Redact(resource("example.com", "v1", "accounts"), o, o.Raw)
		if err != nil {
			t.Error(err)
		}
		return string(got)
	}
	var wanted []string
	for n := range 50 {
		wanted = append(wanted, redact(n))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n, want := range wanted {
				if got := redact(n); got != want {
					t.Errorf("%s, alone %s", got, want)
				}
			}
		})
	}
	all.Wait()
}

// A derived key is stable, differs for each purpose and each key, and is not the key.
func TestDeriveKey(t *testing.T) {
	seen := map[string]string{string(testKey()): "the key itself"}
	for _, key := range [][]byte{testKey(), []byte(strings.Repeat("k", MinKey))} {
		for _, purpose := range []string{"rows", "names"} {
			what := fmt.Sprintf("%s for %s", key, purpose)
			derived, err := New(key).DeriveKey(purpose)
			again, _ := New(key).DeriveKey(purpose)
			if err != nil || len(derived) != 32 || !bytes.Equal(derived, again) || seen[string(derived)] != "" {
				t.Errorf("%s: %x, then %x, which is that of %q: %v", what, derived, again, seen[string(derived)], err)
			}
			seen[string(derived)] = what
		}
	}
}
