package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/observe"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// scriptedAPI is an API server for ConfigMaps that answers each request with the next step of a script, and writes down
// what it was asked. A request beyond the script waits until the client gives up.
type scriptedAPI struct {
	t      *testing.T
	url    string
	mu     sync.Mutex
	asked  []string
	script []apiStep
	done   chan struct{} // closed when the script is used up
}

// apiStep is one answer: a status code and a body, sent at once.
type apiStep struct {
	code int
	body string
	hold bool // keep the response open until the client closes it
}

func newScriptedAPI(t *testing.T, script ...apiStep) *scriptedAPI {
	t.Helper()
	api := &scriptedAPI{t: t, script: script, done: make(chan struct{})}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	api.url = server.URL
	return api
}

func (a *scriptedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked = append(a.asked, describeRequest(r))
	step := apiStep{code: -1}
	if len(a.script) > 0 {
		step, a.script = a.script[0], a.script[1:]
		if len(a.script) == 0 {
			close(a.done)
		}
	}
	a.mu.Unlock()
	if step.code == -1 {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(step.code)
	_, _ = w.Write([]byte(step.body))
	_ = http.NewResponseController(w).Flush()
	if step.hold {
		<-r.Context().Done()
	}
}

// describeRequest is the verb and what matters of the query.
func describeRequest(r *http.Request) string {
	q := r.URL.Query()
	verb := "LIST"
	switch {
	case q.Get("sendInitialEvents") == "true":
		verb = "WATCHLIST"
	case q.Get("watch") == "true":
		verb = "WATCH"
	}
	d := verb + " " + r.URL.Path + " rv=" + q.Get("resourceVersion")
	for _, k := range []string{"labelSelector", "continue"} {
		if q.Get(k) != "" {
			d += " " + k + "=" + q.Get(k)
		}
	}
	if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, "application/json") {
		d += " Accept=" + accept
	}
	return d
}

func (a *scriptedAPI) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

func (a *scriptedAPI) client() rest.Interface {
	client, err := informer.NewClient(&rest.Config{Host: a.url})
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

const cmPath = "/api/v1/configmaps"

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func cmJSON(name string, rv int) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1",%s`, itemJSON(name, rv)[1:])
}

// itemJSON is a ConfigMap as it stands in a typed list.
func itemJSON(name string, rv int) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%q,"namespace":"ns","uid":"u-%s","resourceVersion":"%d","managedFields":[{"manager":"m"}]},"data":{"k":"v%d"}}`,
		name,
		name,
		rv,
		rv,
	)
}

func eventJSON(eventType, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", eventType, object)
}

func bookmarkJSON(rv int, end bool) string {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return eventJSON(
		"BOOKMARK",
		fmt.Sprintf(
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d","creationTimestamp":null%s}}`,
			rv,
			annotations,
		),
	)
}

func statusJSON(code int, reason metav1.StatusReason) string {
	b, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "said the server",
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func listJSON(rv int, next string, items ...string) string {
	return fmt.Sprintf(
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`,
		rv,
		next,
		strings.Join(items, ","),
	)
}

// logStore is a cache.ReflectorStore that writes down what the Reflector does.
type logStore struct {
	mu  sync.Mutex
	log []string
	rv  string
	raw map[string]string // by name@resourceVersion
}

func (s *logStore) note(verb string, obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, verb+" "+s.describe(obj))
	return nil
}

func (s *logStore) describe(obj any) string {
	o := obj.(*object.Object)
	d := o.Name + "@" + o.ResourceVersion
	if o.Kind() != "ConfigMap" || o.Manager != "m" || o.UID == "" {
		d += fmt.Sprintf(" with an odd identity %+v", o.Identity)
	}
	if s.raw == nil {
		s.raw = map[string]string{}
	}
	if was, ok := s.raw[d]; ok && was != string(o.Raw) {
		d += fmt.Sprintf(" differs: %s and %s", was, o.Raw)
	}
	s.raw[d] = string(o.Raw)
	return d
}

func (s *logStore) Add(obj any) error    { return s.note("add", obj) }
func (s *logStore) Update(obj any) error { return s.note("update", obj) }
func (s *logStore) Delete(obj any) error { return s.note("delete", obj) }
func (s *logStore) Resync() error        { return nil }

func (s *logStore) Replace(objects []any, rv string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, o := range objects {
		names = append(names, s.describe(o))
	}
	slices.Sort(names)
	s.log = append(s.log, fmt.Sprintf("replace %v rv=%s", names, rv))
	return nil
}

func (s *logStore) Bookmark(rv string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "bookmark "+rv)
	return nil
}

func (s *logStore) UpdateResourceVersion(rv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv = rv
}

// contextLW is a cache.ListerWatcher that must be called with a context.
type contextLW struct{ cache.ListerWatcherWithContext }

func (contextLW) List(metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("the Reflector asks with a context")
}

func (contextLW) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("the Reflector asks with a context")
}

// plainLW hides WatchList from the Reflector.
type plainLW struct{ contextLW }

func (plainLW) IsWatchListSemanticsUnSupported() bool { return true }

// reflection is what a Reflector did.
type reflection struct {
	store  *logStore
	errors []error // of requests, as the Reflector reports them
}

// reflect runs client-go's Reflector until the script is used up and the store has seen want events.
func reflect(t *testing.T, api *scriptedAPI, lw cache.ListerWatcher, until string) reflection {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := reflection{store: &logStore{}}
	reflector := cache.NewReflectorWithOptions(lw, &object.Object{}, r.store, cache.ReflectorOptions{Name: t.Name()})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			// What RunWithContext does, without its pauses.
			if err := reflector.ListAndWatchWithContext(ctx); err != nil {
				r.errors = append(r.errors, err)
			}
		}
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		r.store.mu.Lock()
		reached := len(r.store.log) > 0 && r.store.log[len(r.store.log)-1] == until
		r.store.mu.Unlock()
		select {
		case <-api.done:
			if reached {
				cancel()
			}
		default:
		}
		select {
		case <-ended:
			if !reached {
				t.Errorf("the store never saw %q", until)
			}
			return r
		case <-tick.C:
		}
	}
}

func TestReflector(t *testing.T) {
	events := eventJSON(
		"ADDED",
		cmJSON("c", 12),
	) + eventJSON(
		"MODIFIED",
		cmJSON("a", 13),
	) + bookmarkJSON(
		20,
		false,
	) + eventJSON(
		"DELETED",
		cmJSON("b", 21),
	)
	seen := []string{"add c@12", "update a@13", "bookmark 20", "delete b@21"}
	t.Run("list and watch", func(t *testing.T) {
		api := newScriptedAPI(t,
			apiStep{code: 200, body: listJSON(10, "next", itemJSON("a", 1))},
			apiStep{code: 200, body: listJSON(10, "", itemJSON("b", 2))},
			apiStep{code: 200, body: events},
			apiStep{code: 200, body: eventJSON("MODIFIED", cmJSON("c", 22)), hold: true},
		)
		var lw cache.ListerWatcherWithContext = informer.ListWatch(api.client(), informer.Source{Resource: configMaps})
		r := reflect(t, api, plainLW{contextLW{lw}}, "update c@22")
		observe.CheckLog(t, "store", append(append([]string{"replace [a@1 b@2] rv=10"}, seen...), "update c@22"), r.store.log)
		observe.CheckLog(t, "requests", []string{
			"LIST " + cmPath + " rv=0",
			"LIST " + cmPath + " rv= continue=next",
			"WATCH " + cmPath + " rv=10",
			"WATCH " + cmPath + " rv=21",
		}, api.requests())
		if r.store.rv != "22" || len(r.errors) > 0 {
			t.Errorf("rv %s, errors %v", r.store.rv, r.errors)
		}
	})
	t.Run("watch-list", func(t *testing.T) {
		api := newScriptedAPI(t, apiStep{
			code: 200, hold: true,
			body: eventJSON("ADDED", cmJSON("b", 2)) + eventJSON("ADDED", cmJSON("a", 1)) + bookmarkJSON(10, true) + events,
		})
		lw := informer.ListWatch(api.client(), informer.Source{Resource: configMaps})
		r := reflect(t, api, contextLW{lw}, "delete b@21")
		want := append([]string{"replace [a@1 b@2] rv=10"}, seen...)
		observe.CheckLog(t, "store", want, r.store.log)
		observe.CheckLog(t, "requests", []string{"WATCHLIST " + cmPath + " rv="}, api.requests())
	})
	t.Run("expired in the stream", func(t *testing.T) {
		api := newScriptedAPI(
			t,
			apiStep{
				code: 200,
				body: eventJSON(
					"ADDED",
					cmJSON("a", 1),
				) + bookmarkJSON(
					10,
					true,
				) + eventJSON(
					"ERROR",
					statusJSON(410, metav1.StatusReasonExpired),
				),
			},
			apiStep{
				code: 200,
				body: eventJSON("ADDED", cmJSON("a", 31)) + bookmarkJSON(40, true) + eventJSON("MODIFIED", cmJSON("a", 41)),
				hold: true,
			},
		)
		lw := informer.ListWatch(api.client(), informer.Source{Resource: configMaps})
		r := reflect(t, api, contextLW{lw}, "update a@41")
		observe.CheckLog(t, "store", []string{"replace [a@1] rv=10", "replace [a@31] rv=40", "update a@41"}, r.store.log)
		observe.CheckLog(
			t,
			"requests",
			[]string{"WATCHLIST " + cmPath + " rv=", "WATCHLIST " + cmPath + " rv=10"},
			api.requests(),
		)
	})
}

// A list has the bytes that a watch has: logStore compares them.
func TestReflectorSameBytes(t *testing.T) {
	api := newScriptedAPI(t,
		apiStep{code: 200, body: listJSON(10, "", itemJSON("a", 9))},
		apiStep{code: 200, body: eventJSON("ADDED", cmJSON("a", 9)), hold: true},
	)
	r := reflect(
		t,
		api,
		plainLW{contextLW{informer.ListWatch(api.client(), informer.Source{Resource: configMaps})}},
		"add a@9",
	)
	observe.CheckLog(t, "store", []string{"replace [a@9] rv=10", "add a@9"}, r.store.log)
}

func TestReflectorRefused(t *testing.T) {
	for _, test := range []struct {
		code   int
		reason metav1.StatusReason
		is     func(error) bool
	}{
		{403, metav1.StatusReasonForbidden, apierrors.IsForbidden},
		{404, metav1.StatusReasonNotFound, apierrors.IsNotFound},
		{410, metav1.StatusReasonExpired, apierrors.IsResourceExpired},
	} {
		t.Run(string(test.reason), func(t *testing.T) {
			refusal := apiStep{code: test.code, body: statusJSON(test.code, test.reason)}
			api := newScriptedAPI(t, refusal, refusal)
			lw := informer.ListWatch(api.client(), informer.Source{Resource: configMaps})
			_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
			_, watchErr := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
			for _, err := range []error{err, watchErr} {
				if !test.is(err) || !strings.Contains(err.Error(), "said the server") {
					t.Errorf("%v", err)
				}
			}
		})
	}
	t.Run("then allowed", func(t *testing.T) {
		forbidden := apiStep{code: 403, body: statusJSON(403, metav1.StatusReasonForbidden)}
		api := newScriptedAPI(
			t,
			forbidden,
			forbidden,
			apiStep{code: 200, body: eventJSON("ADDED", cmJSON("a", 1)) + bookmarkJSON(10, true), hold: true},
		)
		r := reflect(
			t,
			api,
			contextLW{informer.ListWatch(api.client(), informer.Source{Resource: configMaps})},
			"replace [a@1] rv=10",
		)
		if len(r.errors) != 1 || !apierrors.IsForbidden(errors.Unwrap(r.errors[0])) && !apierrors.IsForbidden(r.errors[0]) {
			t.Errorf("%v", r.errors)
		}
	})
}

// A list that ends in the middle is an error, never a shorter list.
func TestListCutOff(t *testing.T) {
	body := listJSON(10, "", itemJSON("a", 1), itemJSON("b", 2))
	api := newScriptedAPI(
		t,
		apiStep{code: 200, body: body[:len(body)-10]},
		apiStep{code: 200, body: statusJSON(500, "x")},
		apiStep{code: 200, body: "<html>"},
	)
	lw := informer.ListWatch(api.client(), informer.Source{Resource: configMaps})
	for range 3 {
		if list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
			t.Errorf("%+v", list)
		}
	}
}

// A document that is not an event ends the watch, which is opened again where it was; where it stays, the resource is
// listed.
func TestReflectorMalformedDocument(t *testing.T) {
	const bad = `{"type":"MODIFIED","object":{"metadata":` + "\n"
	start := eventJSON("ADDED", cmJSON("a", 1)) + bookmarkJSON(10, true) + eventJSON("MODIFIED", cmJSON("a", 11))
	next := eventJSON("MODIFIED", cmJSON("a", 12))
	list := apiStep{
		code: 200,
		body: eventJSON("ADDED", cmJSON("a", 12)) + bookmarkJSON(12, true) + eventJSON("DELETED", cmJSON("a", 13)),
		hold: true,
	}
	// An object without a resourceVersion is not an event even as the first of a watch: the Reflector would take its next
	// watch from nowhere.
	unversioned := eventJSON("MODIFIED", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}`)
	watchList, again := "WATCHLIST "+cmPath+" rv=", "WATCH "+cmPath+" rv=11"
	tests := []struct {
		name            string
		script          []apiStep
		store, requests []string
		reports         int
	}{
		{
			name:     "once",
			script:   []apiStep{{code: 200, body: start + "garbage\n" + next, hold: true}, {code: 200, body: next, hold: true}},
			store:    []string{"replace [a@1] rv=10", "update a@11", "update a@12"},
			requests: []string{watchList, again}, reports: 1,
		},
		{
			name: "at another position each time",
			script: []apiStep{
				{code: 200, body: start + bad, hold: true},
				{code: 200, body: next + unversioned, hold: true},
				{code: 200, body: eventJSON("DELETED", cmJSON("a", 13)), hold: true},
			},
			store:    []string{"replace [a@1] rv=10", "update a@11", "update a@12", "delete a@13"},
			requests: []string{watchList, again, "WATCH " + cmPath + " rv=12"}, reports: 2,
		},
		{
			name: "each time",
			script: []apiStep{
				{code: 200, body: start + unversioned, hold: true},
				{code: 200, body: unversioned + next, hold: true},
				list,
			},
			store:    []string{"replace [a@1] rv=10", "update a@11", "replace [a@12] rv=12", "delete a@13"},
			requests: []string{watchList, again, watchList + "11"},
			reports:  2,
		},
		{
			name: "each time within the list",
			script: []apiStep{
				{code: 200, body: eventJSON("ADDED", cmJSON("a", 1)) + bad},
				{code: 200, body: eventJSON("ADDED", cmJSON("b", 2)) + bad},
				{code: 200, body: listJSON(10, "", itemJSON("a", 1))},
				{code: 200, body: eventJSON("MODIFIED", cmJSON("a", 11)), hold: true},
			},
			store:    []string{"replace [a@1] rv=10", "update a@11"},
			requests: []string{watchList, watchList, "LIST " + cmPath + " rv=0", "WATCH " + cmPath + " rv=10"}, reports: 2,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			api, reports := newScriptedAPI(t, test.script...), 0
			lw := informer.ListWatch(api.client(), informer.Source{Resource: configMaps})
			lw.Failed = func(err error) {
				if reports++; !errors.Is(err, object.ErrMalformed) {
					t.Errorf("%v", err)
				}
			}
			r := reflect(t, api, contextLW{lw}, test.store[len(test.store)-1])
			observe.CheckLog(t, "store", test.store, r.store.log)
			observe.CheckLog(t, "requests", test.requests, api.requests())
			if reports != test.reports {
				t.Errorf("%d reports", reports)
			}
		})
	}
}

// A connection that breaks before the response leads to another watch, not to a list.
func TestReflectorConnectionLost(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, describeRequest(r))
		n := len(asked)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch n {
		case 1:
			_, _ = w.Write(
				[]byte(eventJSON("ADDED", cmJSON("a", 1)) + bookmarkJSON(10, true) + eventJSON("MODIFIED", cmJSON("a", 11))),
			)
		case 2, 3: // once on a connection that was used before, on which net/http tries again by itself, once on a new one
			panic(http.ErrAbortHandler)
		default:
			_, _ = w.Write([]byte(eventJSON("MODIFIED", cmJSON("a", 12))))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	client, err := informer.NewClient(&rest.Config{Host: server.URL, Timeout: time.Nanosecond}) // it must not end watches
	if err != nil {
		t.Fatal(err)
	}
	api := &scriptedAPI{done: make(chan struct{})}
	close(api.done)
	r := reflect(t, api, contextLW{informer.ListWatch(client, informer.Source{Resource: configMaps})}, "update a@12")
	mu.Lock()
	defer mu.Unlock()
	observe.CheckLog(
		t,
		"requests",
		[]string{
			"WATCHLIST " + cmPath + " rv=",
			"WATCH " + cmPath + " rv=11",
			"WATCH " + cmPath + " rv=11",
			"WATCH " + cmPath + " rv=11",
		},
		asked,
	)
	if len(r.errors) > 0 {
		t.Errorf("%v", r.errors)
	}
}

func TestListWatchRequests(t *testing.T) {
	for _, test := range []struct {
		gvr       schema.GroupVersionResource
		namespace string
		want      string
	}{
		{configMaps, "", "LIST /api/v1/configmaps rv= labelSelector=a=b"},
		{configMaps, "ns", "LIST /api/v1/namespaces/ns/configmaps rv= labelSelector=a=b"},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "", "LIST /apis/apps/v1/deployments rv= labelSelector=a=b"},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "ns", "LIST /apis/apps/v1/namespaces/ns/deployments rv= labelSelector=a=b"},
	} {
		api := newScriptedAPI(t, apiStep{code: 200, body: listJSON(1, "")})
		source := informer.Source{Resource: test.gvr, Namespace: test.namespace, LabelSelector: "a=b"}
		lw := informer.ListWatch(api.client(), source)
		if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		observe.CheckLog(t, "requests", []string{test.want}, api.requests())
	}
}

// Stop and the context end a watch that waits, and close its channel.
func TestWatchEnds(t *testing.T) {
	for _, how := range []string{"stop", "context", "stop while an event waits"} {
		t.Run(how, func(t *testing.T) {
			api := newScriptedAPI(
				t,
				apiStep{code: 200, body: eventJSON("ADDED", cmJSON("a", 1)) + eventJSON("ADDED", cmJSON("b", 2)), hold: true},
			)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w, err := informer.ListWatch(api.client(), informer.Source{Resource: configMaps}).
				WatchWithContext(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if how != "stop while an event waits" {
				<-w.ResultChan()
				<-w.ResultChan()
			}
			if how == "context" {
				cancel()
			} else {
				w.Stop()
			}
			for range w.ResultChan() {
			}
			w.Stop()
		})
	}
}

func TestNewClientBadConfig(t *testing.T) {
	if _, err := informer.NewClient(&rest.Config{Host: "http://[::1"}); err == nil {
		t.Error("no error for a bad host")
	}
	if _, err := informer.NewClient(
		&rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nonexistent"}},
	); err == nil {
		t.Error("no error for a bad file")
	}
	config := &rest.Config{Host: "http://127.0.0.1:1", QPS: 5, Timeout: time.Second}
	client, err := informer.NewClient(config)
	if err != nil || client.GetRateLimiter() != nil {
		t.Errorf("%v, throttled by %v", err, client.GetRateLimiter())
	}
	if config.Timeout != time.Second || config.QPS != 5 || config.NegotiatedSerializer != nil {
		t.Error("the configuration was changed")
	}
}
