package actor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/scale"
)

const auditPolicy = `omitStages: [RequestReceived]
omitManagedFields: true
rules:
  - {level: None, verbs: [get, list, watch]}
  - {level: RequestResponse, namespaces: [joined]}
  - {level: None}
`

// ignore is an audit.Observer.
type ignore struct{}

func (ignore) Received(int, int64, time.Duration) {}
func (ignore) Refused(audit.Reason)               {}

// intake starts a receiver of audit events, and returns its journal and flags for an API server that sends to it.
func intake(t *testing.T) (*audit.Journal, []string) {
	t.Helper()
	dir := t.TempDir()
	a, err := cluster.NewAuditIntake(dir, auditPolicy, "")
	if err != nil {
		t.Fatal(err)
	}
	journal, err := audit.OpenJournal(audit.JournalOptions{Dir: filepath.Join(dir, "audit")})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	handler, err := audit.NewHandler(
		audit.HandlerOptions{Journal: journal, Clients: true, Logger: log, Observer: ignore{}},
	)
	if err != nil {
		t.Fatal(err)
	}
	server, err := audit.NewServer(audit.ServerOptions{
		Address: a.Address, CertFile: a.CertFile, KeyFile: a.KeyFile, ClientCAFile: a.CAFile, Handler: handler, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, journal.Close()); err != nil {
			t.Error(err)
		}
	})
	return journal, append(a.Flags, "--audit-webhook-batch-max-wait=200ms")
}

// joined gives a joiner what is watched and the journal, and collects its answers.
type joined struct {
	t       *testing.T
	mu      sync.Mutex
	joiner  *Joiner
	answers []Answer
	last    map[string]*unstructured.Unstructured // by uid
}

// states are the two states of a change.
type states struct{ before, after *unstructured.Unstructured }

func kindOf(before, after *unstructured.Unstructured, typ string) Kind {
	node := func(o *unstructured.Unstructured) string {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		return name
	}
	switch {
	case typ == "ADDED":
		return Added
	case typ == "DELETED" && after.GetDeletionTimestamp() == nil:
		return Deleted
	case typ == "DELETED":
		return Finished
	case after.GetDeletionTimestamp() != nil && before.GetDeletionTimestamp() == nil:
		return Marked
	case after.GetDeletionTimestamp() != nil && !(slices.Equal(before.GetFinalizers(), after.GetFinalizers()) &&
		before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) &&
		*before.GetDeletionGracePeriodSeconds() == *after.GetDeletionGracePeriodSeconds()):
		return Remarked
	case node(before) == "" && node(after) != "":
		return Bound
	}
	return Updated
}

// watch passes on the changes of a resource until the context ends.
func (j *joined) watch(ctx context.Context, client dynamic.ResourceInterface, resource string) {
	w, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		j.t.Error(err)
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case !ok && ctx.Err() != nil:
			return
		case !ok:
			j.t.Errorf("%+v", e)
			return
		}
		number := func(o *unstructured.Unstructured) uint64 { return version([]byte(o.GetResourceVersion())) }
		j.mu.Lock()
		c := Change{
			Resource: resource, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), After: number(o),
			Observed: time.Now(),
		}
		before := j.last[c.UID]
		if before != nil {
			c.Before = number(before)
		}
		c.Kind, c.Ref = kindOf(before, o, string(e.Type)), states{before, o}
		j.last[c.UID] = o
		j.answers = append(j.answers, j.joiner.Change(c)...)
		j.mu.Unlock()
	}
}

// read passes on the audit events until the context ends.
func (j *joined) read(ctx context.Context, journal *audit.Journal) {
	for next := uint64(1); ; {
		records, err := journal.Read(ctx, next, 1<<20)
		if err != nil {
			return
		}
		j.mu.Lock()
		for _, r := range records {
			next = r.Last + 1
			j.answers = append(j.answers, j.joiner.Event(&r.Event, time.Now())...)
		}
		j.mu.Unlock()
	}
}

// drain waits until no change waits.
func (j *joined) drain() {
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for range ticks.C {
		j.mu.Lock()
		waiting := len(j.joiner.waiting)
		j.mu.Unlock()
		if waiting == 0 {
			return
		}
	}
}

func (j *joined) expire(ctx context.Context) {
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			j.mu.Lock()
			j.answers = append(j.answers, j.joiner.Expire(now)...)
			j.mu.Unlock()
		}
	}
}

// writer is a user who sends requests. The user agent of each names it; objects have it in an annotation, or a number.
type writer struct {
	t       *testing.T
	client  *kubernetes.Clientset
	http    *http.Client
	host    string
	user    string
	n, base int
	id      string
	*successes
}

// successes contains which requests to delete an object were answered with success, by uid.
type successes struct {
	mu    sync.Mutex
	byUID map[string][]string
}

func (s *successes) add(uid, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUID[uid] = append(s.byUID[uid], id)
}

// send sends a request to /api/v1/namespaces/joined or that of apps, and returns the response. Errors of the object's
// state are expected, and those of the client (tolerated).
func (w *writer) send(verb, path, mediaType, body string, tolerated ...int) *unstructured.Unstructured {
	path, query, _ := strings.Cut(path, "?")
	path = "/namespaces/joined/" + path
	if strings.Contains(path, "/deployments") {
		path = "/apis/apps/v1" + path
	} else {
		path = "/api/v1" + path
	}
	r := w.client.CoreV1().RESTClient().Verb(verb).RequestURI(path+"?"+query).SetHeader("User-Agent", w.id)
	if strings.Contains(query, "includeObject") {
		r.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	}
	if body != "" {
		r.SetHeader("Content-Type", mediaType).Body([]byte(body))
	}
	raw, err := r.Do(w.t.Context()).Raw()
	if err != nil {
		code := 0
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
			code = int(status.ErrStatus.Code)
		}
		if !slices.Contains(append(tolerated, 404, 409, 422), code) {
			w.t.Errorf("%s %s %s: %d %v", verb, path, body, code, err)
		}
		return nil
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &o.Object); err != nil {
		w.t.Errorf("%s: %v", raw, err)
	}
	return o
}

// ignoredQuery sends a patch as it is. The client of Kubernetes ignores a query with too many parameters, as the API
// server does.
func (w *writer) ignoredQuery(path, body string) {
	url := w.host + "/api/v1/namespaces/joined/" + path
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPatch, url, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return
	}
	r.Header.Set("Content-Type", mergeType)
	r.Header.Set("User-Agent", w.id)
	response, err := w.http.Do(r)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		w.t.Errorf("%s: %s", path[:30], response.Status)
	}
}

const (
	jsonType  = "application/json"
	mergeType = "application/merge-patch+json"
)

// remove sends a request to delete an object, and notes whether it succeeded.
func (w *writer) remove(verb, path, mediaType, body string) {
	o := w.send(verb, path, mediaType, body, 429)
	if o == nil {
		return
	}
	uid := string(o.GetUID())
	if details, _, _ := unstructured.NestedString(o.Object, "details", "uid"); details != "" {
		uid = details
	}
	if items, _, _ := unstructured.NestedSlice(o.Object, "items"); items != nil {
		for _, item := range items {
			in := unstructured.Unstructured{Object: item.(map[string]any)}
			w.add(string(in.GetUID()), w.id)
		}
		return
	}
	w.add(uid, w.id)
}

// hidden is a part of the ids of requests whose audit events do not say which version they wrote.
const hidden = "-hidden"

// step sends a random request.
func (w *writer) step() {
	w.n++
	w.id = fmt.Sprintf("%s-%d", w.user, w.n)
	kind := rand.IntN(100)
	if kind >= 59 && kind < 64 {
		w.id += []string{"-none", "-none", "-wrong", "-wrong", "-ignored"}[kind-59] + hidden
	}
	number := strconv.Itoa(w.base + w.n)
	meta := `"annotations":{"by":"` + w.id + `"}`
	name := fmt.Sprint("c", rand.IntN(6))
	patch := `{"metadata":{` + meta + `}}`
	configmap := func(more string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `",` + meta + more + `}}`
	}
	current := func(path string) *unstructured.Unstructured { return w.send("GET", path, "", "") }
	switch {
	case kind < 15:
		more := ""
		if rand.IntN(3) == 0 {
			more = `,"finalizers":["deltabridge.dev/test"]`
		}
		w.send("POST", "configmaps", jsonType, configmap(more))
	case kind < 27: // without a resourceVersion, with one that is ignored, with the right one, without an effect
		o := current("configmaps/" + name)
		if o == nil {
			return
		}
		n := rand.IntN(5)
		if n < 2 {
			o.SetResourceVersion([]string{"", "0"}[n])
		}
		if n < 4 {
			o.SetAnnotations(map[string]string{"by": w.id})
		}
		body, _ := o.MarshalJSON()
		w.send("PUT", "configmaps/"+name, jsonType, string(body))
	case kind < 37:
		w.send("PATCH", "configmaps/"+name, mergeType, patch)
	case kind < 47: // has an effect only once
		ignored := []string{"", `"resourceVersion":"0",`}[rand.IntN(2)]
		w.send("PATCH", "configmaps/"+name, mergeType, `{"metadata":{`+ignored+`"labels":{"same":"x"}}}`)
	case kind < 50:
		w.send(
			"PATCH",
			"configmaps/"+name,
			"application/json-patch+json",
			`[{"op":"add","path":"/metadata/annotations","value":{"by":"`+w.id+`"}}]`,
		)
	case kind < 55:
		w.send("PATCH", "configmaps/"+name+"?fieldManager=m&force=true", "application/apply-patch+yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "+name+"\n  annotations: {by: "+w.id+"}\n")
	case kind < 59:
		w.send("PATCH", "configmaps/"+name+"?dryRun=All", mergeType, patch)
	case kind < 61: // this and the next two hide which version they write
		w.send("PATCH", "configmaps/"+name+"?includeObject=None", mergeType, patch)
	case kind < 63:
		w.send("PATCH", "configmaps/"+name+"?includeObject=Wrong", mergeType, patch, 400)
	case kind < 64:
		w.ignoredQuery("configmaps/"+name+"?dryRun=All"+strings.Repeat("&", 10_001), patch)
	case kind < 65:
		w.remove("DELETE", "configmaps/"+name+"?dryRun=All", jsonType, `{"kind":"DeleteOptions","apiVersion":"v1"}`)
	case kind < 72:
		w.remove("DELETE", "configmaps/"+name, jsonType, "")
	case kind < 73:
		w.send("DELETE", "configmaps/"+name, jsonType, `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`)
	case kind < 78:
		w.remove("PATCH", "configmaps/"+name, mergeType, `{"metadata":{"finalizers":null,`+meta+`}}`)
	case kind < 79:
		w.remove("DELETE", "configmaps", "", "")
	case kind < 83:
		w.send("PATCH", "deployments/web/scale", mergeType, `{"spec":{"replicas":`+number+`}}`)
	case kind < 86:
		w.send("PATCH", "deployments/web/status", mergeType, `{"status":{"replicas":`+number+`}}`)
	default:
		w.pod(kind, patch)
	}
}

func (w *writer) pod(kind int, patch string) {
	name := fmt.Sprint("p", rand.IntN(3))
	o := w.send("GET", "pods/"+name, "", "")
	switch {
	case o == nil:
		w.send(
			"POST",
			"pods",
			jsonType,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+name+`",`+patch[len(`{"metadata":{`):len(patch)-1]+
				`,"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`,
			403,
		)
	case kind < 90:
		uid := []string{`"uid":"` + string(o.GetUID()) + `",`, ""}[rand.IntN(2)]
		w.send(
			"POST",
			"pods/"+name+"/binding",
			jsonType,
			`{"apiVersion":"v1","kind":"Binding","metadata":{`+uid+`"name":"`+name+`",`+
				patch[len(`{"metadata":{`):len(patch)-1]+`,"target":{"kind":"Node","name":"node"}}`,
			500,
		)
	case kind < 92:
		w.send("PATCH", "pods/"+name, mergeType, patch)
	case kind < 94:
		w.send("PATCH", "pods/"+name+"/status", mergeType, `{"status":{"message":"`+w.id+`"}}`)
	case kind < 96:
		w.send(
			"POST",
			"pods/"+name+"/eviction",
			jsonType,
			`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+name+`"},`+
				`"deleteOptions":{"preconditions":{"uid":"`+string(o.GetUID())+`"}}}`,
			429,
			500,
		)
	case kind < 98:
		w.remove("DELETE", "pods/"+name, jsonType, "")
	default:
		w.remove("DELETE", "pods/"+name, jsonType, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`)
	}
}

// by returns the id of the request that made a change, as far as the object shows it.
func (s states) by(numbers map[string]string) string {
	text := func(o *unstructured.Unstructured, path ...string) string {
		if o == nil {
			return ""
		}
		v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
		if v == nil {
			return ""
		}
		return fmt.Sprint(v)
	}
	for _, path := range [][]string{
		{"metadata", "annotations", "by"}, {"status", "message"}, {"spec", "replicas"}, {"status", "replicas"},
	} {
		if now := text(s.after, path...); now != text(s.before, path...) {
			if id := numbers[now]; id != "" {
				return id
			}
			return now
		}
	}
	return ""
}

// Ten users write the same objects at the same time, and try to hide. No actor is wrong.
func TestAPIServer(t *testing.T) {
	journal, flags := intake(t)
	c := cluster.ForTest(t, func(o *cluster.Options) { o.APIServerFlags = flags })
	admin, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "joined"}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watcher, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	j := &joined{t: t, joiner: New(Options{}), last: map[string]*unstructured.Unstructured{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, r := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "pods"}, {Group: "apps", Version: "v1", Resource: "deployments"},
	} {
		running.Go(func() { j.watch(ctx, watcher.Resource(r).Namespace("joined"), r.Resource) })
	}
	running.Go(func() { j.read(ctx, journal) })
	running.Go(func() { j.expire(ctx) })

	s, numbers := &successes{byUID: map[string][]string{}}, map[string]string{}
	var writing sync.WaitGroup
	steps := scale.Of(60, 1000)
	for n := range 10 {
		config := rest.CopyConfig(c.RESTConfig())
		config.Impersonate = rest.ImpersonationConfig{UserName: fmt.Sprint("user", n), Groups: []string{"system:masters"}}
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		httpClient, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		w := &writer{
			t:         t,
			client:    client,
			http:      httpClient,
			host:      config.Host,
			user:      config.Impersonate.UserName,
			base:      1_000_000 * (n + 1),
			successes: s,
		}
		for step := range steps {
			numbers[strconv.Itoa(w.base+step+1)] = fmt.Sprintf("%s-%d", w.user, step+1)
		}
		if n == 0 {
			w.id = "user0-0"
			w.send(
				"POST",
				"deployments",
				jsonType,
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"by":"user0-0"}},`+
					`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			)
		}
		writing.Go(func() {
			for range steps {
				w.step()
			}
		})
	}
	writing.Wait()
	j.drain()
	stop()
	running.Wait()
	if j.compare(s, numbers); t.Failed() {
		dump(t, journal)
	}
}

// dump logs what the audit events say.
func dump(t *testing.T, journal *audit.Journal) {
	records, err := journal.Read(t.Context(), 1, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		var s scanned
		e := &r.Event
		s.scan(e)
		uri := s.uri[:min(len(s.uri), 120)]
		t.Logf(
			"%s %s %s %s: %d base %d, %s %d list %d; %s to %s",
			s.userAgent,
			e.Verb,
			e.Object.Subresource,
			uri,
			s.code,
			s.request.version,
			s.object.uid,
			s.object.version,
			len(s.list),
			e.Received.Format("05.000000"),
			e.StageTime.Format("05.000000"),
		)
	}
}

// compare compares the answers with the objects and the responses.
func (j *joined) compare(s *successes, numbers map[string]string) {
	all, counts, hiding := &shares{}, map[string]*shares{}, map[string]int{}
	for _, a := range j.answers {
		kind := fmt.Sprintf("%s %d", a.Change.Resource, a.Change.Kind)
		if counts[kind] == nil {
			counts[kind] = &shares{}
		}
		counts[kind].count(a)
		all.count(a)
		want := a.Change.Ref.(states).by(numbers)
		if strings.HasSuffix(want, hidden) {
			hiding[strings.Split(want, "-")[2]]++
		}
		for _, actor := range []*Actor{a.By, a.Requested} {
			if actor == nil {
				continue
			}
			ok := strings.HasPrefix(actor.UserAgent, actor.Impersonated+"-")
			if a.Change.Kind&(Marked|deletion) != 0 {
				ids := s.byUID[a.Change.UID]
				ok = ok && (slices.Contains(ids, actor.UserAgent) || actor.Verb == "create")
			} else if want != "" {
				ok = ok && actor.UserAgent == want
			}
			if !ok || strings.HasSuffix(actor.UserAgent, hidden) {
				j.t.Errorf("%+v: %v (%s), want %q or one of %v", a.Change, actor, actor.UserAgent, want, s.byUID[a.Change.UID])
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		j.t.Logf("%s: %v", kind, counts[kind])
	}
	j.t.Logf("all: %v; by requests that hide: %v", all, hiding)
	if len(hiding) == 0 || all.proven == 0 || all.proven+all.sole < all.changes/2 {
		j.t.Error("too few")
	}
}
