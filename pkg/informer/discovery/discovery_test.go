package discovery

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/informer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// documents are the bodies that an API server has, by path; a number is the code of a refusal. All else is not found.
type documents map[string]any

// discoverer asks an API server that has the documents.
func (d documents) discoverer(t *testing.T) *Discoverer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch answer := d[r.URL.Path].(type) {
		case string:
			_, _ = w.Write([]byte(answer))
		case int:
			w.WriteHeader(answer)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	client, err := informer.NewClient(&rest.Config{Host: server.URL, Transport: httpClient.Transport})
	if err != nil {
		t.Fatal(err)
	}
	return New(NewClient(client), client)
}

// roundTripper is the API server of a client without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stalledBody is a response without an end.
type stalledBody struct{ ctx context.Context } //nolint:containedctx // that of the request

func (b stalledBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }
func (b stalledBody) Close() error             { return nil }

// A server that accepts a request and never responds, or sends only headers, does not end discovery: each request has a
// time limit.
func TestRequestsThatGetNoResponse(t *testing.T) {
	empty := map[string]string{
		"/api": `{"kind":"APIVersions","versions":[]}`, "/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	}
	for _, hanging := range []string{
		"/apis", "/apis/apiregistration.k8s.io/v1/apiservices", "/apis/example.com/v1/widgets",
		"/apis body", "/apis/apiregistration.k8s.io/v1/apiservices body", "/apis/example.com/v1/widgets body",
	} {
		t.Run(hanging, func(t *testing.T) {
			hanging, stalls := strings.CutSuffix(hanging, " body")
			synctest.Test(t, func(t *testing.T) {
				client, err := informer.NewClient(&rest.Config{Host: "http://example", Transport: roundTripper(
					func(r *http.Request) (*http.Response, error) {
						header := http.Header{"Content-Type": {"application/json"}}
						if r.URL.Path == hanging {
							if stalls {
								return &http.Response{
									StatusCode: http.StatusOK, Body: stalledBody{r.Context()}, Header: header, Request: r,
								}, nil
							}
							<-r.Context().Done()
							return nil, r.Context().Err()
						}
						if body, ok := empty[r.URL.Path]; ok {
							return &http.Response{
								StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Header: header, Request: r,
							}, nil
						}
						return &http.Response{
							StatusCode: http.StatusNotFound, Body: http.NoBody, Header: http.Header{}, Request: r,
						}, nil
					})})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				d := New(NewClient(client), client)
				_, err = d.Discover(ctx)
				gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
				gone := d.Gone(ctx, gvr, "", false)
				if ctx.Err() != nil {
					t.Errorf("no end within an hour: %v, gone: %t", err, gone)
				}
			})
		})
	}
}

func groups(versions ...string) string {
	var list []string
	for _, gv := range versions {
		group, version, _ := strings.Cut(gv, "/")
		v := fmt.Sprintf(`{"groupVersion":%q,"version":%q}`, gv, version)
		list = append(list, fmt.Sprintf(`{"name":%q,"versions":[%s],"preferredVersion":%s}`, group, v, v))
	}
	return `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + strings.Join(list, ",") + `]}`
}

// resources is the document of a group/version. Each is given as "name Kind hash".
func resources(gv string, texts ...string) string {
	var list []string
	for _, text := range texts {
		parts := strings.Fields(text)
		list = append(
			list,
			fmt.Sprintf(
				`{"name":%q,"kind":%q,"namespaced":true,"verbs":["list","watch"],"storageVersionHash":%q}`,
				parts[0],
				parts[1],
				parts[2],
			),
		)
	}
	return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[%s]}`, gv, strings.Join(list, ","))
}

// apiService is an APIService; of has its labels or its service.
func apiService(gv, of string) string {
	group, version, _ := strings.Cut(gv, "/")
	labels, service := of, ""
	if of == "service" {
		labels, service = "", `,"service":{"name":"x"}`
	}
	return fmt.Sprintf(
		`{"metadata":{"labels":{%q:%q}},"spec":{"group":%q,"version":%q%s}}`,
		automanaged,
		labels,
		group,
		version,
		service,
	)
}

func servedIn(resource, group, kind string, namespaced bool, versions ...string) Served {
	return Served{
		GroupResource: schema.GroupResource{Group: group, Resource: resource},
		Kind:          kind,
		Namespaced:    namespaced,
		Versions:      versions,
	}
}

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

func TestDiscover(t *testing.T) {
	served := func() documents {
		return documents{
			"/api":          `{"kind":"APIVersions","versions":["v1"]}`,
			"/api/v1":       resources("v1", "pods Pod a"),
			"/apis":         groups("apps/v1", "metrics.k8s.io/v1", "example.com/v1"),
			"/apis/apps/v1": resources("apps/v1", "deployments Deployment b"),
			"/apis/example.com/v1": resources(
				"example.com/v1",
				"widgets Widget c",
			),
			"/apis/metrics.k8s.io/v1": resources("metrics.k8s.io/v1", "pods PodMetrics d"),
			apiServices: `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[` + strings.Join([]string{
				apiService(
					"/v1",
					"onstart",
				),
				apiService("apps/v1", "onstart"),
				apiService("metrics.k8s.io/v1", "service"),
				apiService("example.com/v1", "true"),
			}, ",") + `]}`,
		}
	}
	for _, tt := range []struct {
		name   string
		change documents
		want   []string
		failed []string
		err    string
	}{
		{
			name: "all of it",
			want: []string{"pods built-in", "deployments.apps built-in", "pods.metrics.k8s.io aggregated", "widgets.example.com defined"},
		},
		{
			name: "a group does not answer", change: documents{"/apis/metrics.k8s.io/v1": http.StatusServiceUnavailable},
			want:   []string{"pods built-in", "deployments.apps built-in", "widgets.example.com defined"},
			failed: []string{"metrics.k8s.io/v1"},
		},
		{
			name: "what stands behind it may not be read", change: documents{apiServices: http.StatusForbidden},
			want: []string{"pods defined", "deployments.apps defined", "pods.metrics.k8s.io defined", "widgets.example.com defined"},
		},
		{name: "what stands behind it can't be read", change: documents{apiServices: http.StatusInternalServerError}, err: "list APIServices"},
		{name: "nothing answers", change: documents{"/api": http.StatusInternalServerError, "/apis": http.StatusInternalServerError}, err: "discover what the API server serves"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := served()
			maps.Copy(d, tt.change)
			found, err := d.discoverer(t).Discover(t.Context())
			if err != nil || tt.err != "" {
				if err == nil || tt.err == "" || !strings.Contains(err.Error(), tt.err) {
					t.Fatal(err)
				}
				return
			}
			var got, failed []string
			for _, s := range found.Served {
				of := "built-in"
				if s.Aggregated {
					of = "aggregated"
				} else if s.Defined {
					of = "defined"
				}
				got = append(got, s.String()+" "+of)
			}
			for gv := range found.Failed {
				failed = append(failed, gv.String())
				if !found.FailedGroup(gv.Group) || found.FailedGroup("apps") {
					t.Error("FailedGroup names another one")
				}
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !slices.Equal(tt.failed, failed) {
				t.Errorf("failed: %v", failed)
			}
		})
	}
}

func TestGone(t *testing.T) {
	const path, definition = "/apis/example.com/v1/widgets", definitionsPath + "/widgets.example.com"
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for _, tt := range []struct {
		name                    string
		documents               documents
		ofDefinition, aggregate bool // what it says of each
	}{
		{"neither it nor its definition", documents{}, true, true},
		{"it is served", documents{path: `{"kind":"WidgetList","items":[]}`}, false, false},
		{"it may not be read", documents{path: http.StatusForbidden}, false, false},
		{"it can't be read", documents{path: http.StatusServiceUnavailable}, false, false},
		{"its definition is there", documents{definition: `{"kind":"CustomResourceDefinition"}`}, false, true},
		{"its definition may not be read", documents{definition: http.StatusForbidden}, true, true},
		{"its definition can't be read", documents{definition: http.StatusServiceUnavailable}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.documents.discoverer(t)
			if got := d.Gone(t.Context(), gvr, "", false); got != tt.ofDefinition {
				t.Errorf("gone: %t", got)
			}
			if got := d.Gone(t.Context(), gvr, "", true); got != tt.aggregate {
				t.Errorf("of an aggregated API: gone: %t", got)
			}
		})
	}
}

// A Role allows requests in its namespace only: in all others, also a resource that is gone is forbidden.
func TestGoneFromTheOnlyAllowedNamespace(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	d := documents{
		"/apis/example.com/v1/widgets":            http.StatusForbidden,
		definitionsPath + "/widgets." + gvr.Group: http.StatusForbidden,
	}
	if !d.discoverer(t).Gone(t.Context(), gvr, "shop", false) {
		t.Error("it does not count as gone")
	}
	d["/apis/example.com/v1/namespaces/shop/widgets"] = `{"kind":"WidgetList","items":[]}`
	if d.discoverer(t).Gone(t.Context(), gvr, "shop", false) {
		t.Error("it counts as gone while it is served")
	}
}

// servedByGroup lists each resource once, with the versions in which it can be listed and watched, preferred first.
func TestServedByGroup(t *testing.T) {
	readable := metav1.Verbs{"get", "list", "watch", "create"}
	group := &metav1.APIGroup{
		Name: "example.com", PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v2"},
		Versions: []metav1.GroupVersionForDiscovery{{Version: "v3"}, {Version: "v2"}, {Version: "v1"}},
	}
	lists := map[string]*metav1.APIResourceList{
		"example.com/v3": {
			APIResources: []metav1.APIResource{
				{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: readable},
				{Name: "news", Kind: "New", Verbs: readable},
			},
		},
		"example.com/v2": {APIResources: []metav1.APIResource{
			{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: readable},
			{Name: "widgets/status", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"get", "patch"}},
			{Name: "reviews", Kind: "Review", Verbs: metav1.Verbs{"create"}},
			{Name: "statuses", Kind: "ComponentStatus", Verbs: metav1.Verbs{"get", "list"}},
		}},
		// v1 did not answer
	}
	v2, v3 := schema.GroupVersion{
		Group:   "example.com",
		Version: "v2",
	}, schema.GroupVersion{
		Group:   "example.com",
		Version: "v3",
	}
	got := servedByGroup(group, lists, map[schema.GroupVersion]service{v2: aggregated, v3: builtIn})
	widgets, news := servedIn(
		"widgets",
		"example.com",
		"Widget",
		true,
		"v2",
		"v3",
	), servedIn(
		"news",
		"example.com",
		"New",
		false,
		"v3",
	)
	widgets.Aggregated = true
	if diff := gocmp.Diff([]Served{widgets, news}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
