package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// actorUsers is what ten users did. The user agent of each request is <user>-<number>, and what a request writes has it in
// an annotation.
type actorUsers struct {
	t       *testing.T
	audited *audited
	written atomic.Int64 // successful writes, not all of which change something

	mu      sync.Mutex
	ids     map[string]bool            // of events about versions that requests have certainly written
	deletes map[string]map[string]bool // who may have requested or completed the deletion of an object, by uid
}

// writer is a user with a service account.
type writer struct {
	*actorUsers

	client *kubernetes.Clientset
	user   string
	n      int
	id     string
}

func (w *actorUsers) user(cs kubernetes.Interface, name string) *writer {
	w.t.Helper()
	accounts := cs.CoreV1().ServiceAccounts("audited")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(w.t.Context(), account, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	token, err := accounts.CreateToken(w.t.Context(), name, &authv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.audited.cluster.RESTConfig())
	config.BearerToken, config.QPS = token.Status.Token, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return &writer{actorUsers: w, client: client, user: name}
}

// send sends a request about ConfigMaps, and returns the response, or nil if it has failed because of the object.
func (w *writer) send(verb, path, mediaType, body string) *metav1.PartialObjectMetadata {
	name, query, _ := strings.Cut(path, "?")
	r := w.client.CoreV1().RESTClient().Verb(verb).RequestURI("/api/v1/namespaces/audited/configmaps"+name+"?"+query).
		SetHeader("User-Agent", w.id)
	if body != "" {
		r.SetHeader("Content-Type", mediaType).Body([]byte(body))
	}
	raw, err := r.Do(w.t.Context()).Raw()
	if err != nil {
		status := apierrors.APIStatus(nil)
		if !errors.As(err, &status) || status.Status().Code/100 != 4 || status.Status().Code == 403 {
			w.t.Errorf("%s: %s %s %s: %v", w.id, verb, path, body, err)
		}
		return nil
	}
	var o struct {
		metav1.PartialObjectMetadata

		Details struct{ UID string }
		Items   []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		w.t.Errorf("%s: %v", raw, err)
	}
	if verb == "GET" || strings.Contains(query, "dryRun") {
		return &o.PartialObjectMetadata
	}
	w.written.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch uid := string(o.UID); {
	case verb == "DELETE":
		w.mayDelete(uid)
		w.mayDelete(o.Details.UID)
		for n := range o.Items {
			w.mayDelete(string(o.Items[n].UID))
		}
	case strings.Contains(body, `"finalizers":null`):
		w.mayDelete(uid)
	case o.Annotations["by"] == w.id:
		w.ids[uid+"."+o.ResourceVersion] = true
	}
	return &o.PartialObjectMetadata
}

func (w *writer) mayDelete(uid string) {
	if w.deletes[uid] == nil {
		w.deletes[uid] = map[string]bool{}
	}
	w.deletes[uid][w.id] = true
}

// step sends random requests. Ten users compete for a few objects, and have some for themselves.
func (w *writer) step() {
	const merge = "application/merge-patch+json"
	w.n++
	w.id = fmt.Sprintf("%s-%d", w.user, w.n)
	name := fmt.Sprint("c", rand.IntN(8))
	by := `"annotations":{"by":"` + w.id + `"}`
	object := func(more string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","labels":{"same":"x"},` + by + more + `}}`
	}
	switch kind := rand.IntN(120); {
	case w.n%60 == 0: // rarely, because it is not known who deleted an object that several users delete
		w.send("DELETE", "", "", "")
	case kind >= 98:
		name = w.id
		w.send("POST", "", "application/json", object(""))
		w.n++
		w.id = fmt.Sprintf("%s-%d", w.user, w.n)
		w.send("DELETE", "/"+name, "", "")
	case kind < 18:
		finalizers := []string{"", "", `,"finalizers":["deltabridge.dev/test"]`}[rand.IntN(3)]
		w.send("POST", "", "application/json", object(finalizers))
	case kind < 36: // with the resourceVersion that it was read with, or without
		current := w.send("GET", "/"+name, "", "")
		if current == nil {
			return
		}
		more := ""
		if len(current.Finalizers) > 0 {
			more = `,"finalizers":["deltabridge.dev/test"]`
		}
		if kind%3 > 0 {
			more += `,"resourceVersion":"` + current.ResourceVersion + `"`
		}
		w.send("PUT", "/"+name, "application/json", object(more))
	case kind < 54:
		w.send("PATCH", "/"+name, merge, `{"metadata":{`+by+`}}`)
	case kind < 64: // without an effect
		w.send("PATCH", "/"+name, merge, `{"metadata":{"labels":{"same":"x"}}}`)
	case kind < 68:
		w.send("PATCH", "/"+name+"?dryRun=All", merge, `{"metadata":{`+by+`}}`)
	case kind < 78:
		w.send("PATCH", "/"+name+"?fieldManager=m&force=true", "application/apply-patch+yaml",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`","labels":{"same":"x"},`+by+`}}`)
	case kind < 90:
		w.send("DELETE", "/"+name, "", "")
	default:
		w.send("PATCH", "/"+name, merge, `{"metadata":{"finalizers":null,`+by+`}}`)
	}
}

// shares counts changes by what they are and how certain it is who made them.
type shares map[string]map[string]int

// judge checks what a broker has.
func (w *actorUsers) judge(broker, level string, got []received) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	counts, seen := shares{}, map[string]bool{}
	for _, r := range got {
		if !r.object() || r.attributes["initiallist"] == "true" {
			continue
		}
		if seen[r.id()] {
			w.t.Errorf("%s has %s twice", broker, r.id())
		}
		seen[r.id()] = true
		w.check(broker, r, counts)
	}
	for id := range w.ids {
		if !seen[id] {
			w.t.Errorf("%s lacks %s", broker, id)
		}
	}
	total := map[string]int{}
	for _, operation := range slices.Sorted(maps.Keys(counts)) {
		w.t.Logf("%s: %s: %v", broker, operation, counts[operation])
		for grade, n := range counts[operation] {
			if operation != "deleted: requested" {
				total[grade] += n
			}
		}
	}
	w.t.Logf("%s: all changes: %v", broker, total)
	if len(counts["updated"]) == 0 || len(counts["added"]) == 0 || len(counts["deleted: completed"]) == 0 {
		w.t.Errorf("%s has too few changes", broker)
	}
	// At the other levels, only creations and deletions can have an actor.
	enough := scale.Of(1, total["unknown"]/20) // half of what docs/audit.md has
	if total["proven"] < enough && level != "Metadata" || total["sole"] < enough {
		w.t.Errorf("%s has too few changes with an actor at level %s", broker, level)
	}
}

// check checks who made a change.
func (w *actorUsers) check(broker string, r received, counts shares) {
	type meta struct {
		Metadata metav1.ObjectMeta
	}
	var data struct{ Object, Old meta }
	if err := json.Unmarshal(r.data, &data); err != nil {
		w.t.Fatalf("%v: %s", err, r.data)
	}
	now, old := &data.Object.Metadata, &data.Old.Metadata
	operation, deletes := r.attributes["operation"], w.deletes[r.attributes["uid"]]
	wrong := func(format string, args ...any) {
		w.t.Errorf("%s: %s of %s: %s: %v", broker, operation, r.subject(), fmt.Sprintf(format, args...), r.attributes)
	}
	count := func(what, grade string) {
		if counts[what] == nil {
			counts[what] = map[string]int{}
		}
		counts[what][grade]++
	}
	grade, agent := r.attributes["actorgrade"], r.attributes["actoragent"]
	by, _, _ := strings.Cut(agent, "-")
	isUser := func(name, by string) bool { return name == "system:serviceaccount:audited:"+by }
	if known := grade != "unknown"; known != (r.attributes["actor"] != "") || grade == "" {
		wrong("the grade is %q", grade)
	} else if known && !isUser(r.attributes["actor"], by) {
		wrong("it names another user")
	}
	switch {
	case operation == "deleted":
		count("deleted: completed", grade)
		count("deleted: requested", r.attributes["requestergrade"])
		if grade != "unknown" && !deletes[agent] {
			wrong("it was completed by one of %v", deletes)
		}
		if requester := r.attributes["requester"]; requester != "" && !slices.ContainsFunc(
			slices.Collect(maps.Keys(deletes)),
			func(id string) bool { by, _, _ := strings.Cut(id, "-"); return isUser(requester, by) },
		) {
			wrong("it was requested by one of %v", deletes)
		} else if grade := r.attributes["requestergrade"]; grade == "" || (grade == "unknown") != (requester == "") {
			wrong("the grade of who requested it is %q", grade)
		}
	case now.DeletionTimestamp != nil && old.DeletionTimestamp == nil:
		count("marked", grade)
		if grade != "unknown" && !deletes[agent] {
			wrong("its deletion was requested by one of %v", deletes)
		}
	default:
		count(operation, grade)
		if want := now.Annotations["by"]; grade != "unknown" && want != old.Annotations["by"] && agent != want {
			wrong("it was made by %s", want)
		}
	}
}

// Ten users write the same objects, and the bridge is killed in the middle. No change is lost or there twice, and none
// names a user who did not make it.
func TestWhoMadeEachChange(t *testing.T) {
	t.Parallel()
	levels := []string{"RequestResponse"}
	if scale.Long() {
		levels = append(levels, "Request", "Metadata")
	}
	for _, level := range levels {
		t.Run(level, func(t *testing.T) { whoMadeEachChange(t, level) })
	}
}

// nothingWaits waits until all events were delivered.
func nothingWaits(b *bridge) {
	b.t.Helper()
	eventually(b.t, time.Minute, func() error {
		for _, sink := range []string{"sink=jetstream", "sink=kafka"} {
			if b.metric("deltabridge_actor_waiting_events", sink)+b.metric("deltabridge_queue_events", sink) > 0 {
				return fmt.Errorf("%s: events wait", sink)
			}
		}
		return nil
	})
}

func whoMadeEachChange(t *testing.T, level string) {
	a := startAudited(t, strings.Replace(auditPolicy, "level: RequestResponse", "level: "+level, 1), "")
	js, k := startJetStream(t), kafka.ForTest(t)
	topic := "actors-" + strings.ToLower(level) + itoa(os.Getpid())
	kafka.CreateTopic(t, k.Addr(), topic, 3, nil)
	config := strings.Replace(fmt.Sprintf(a.keys, a.address), "audit: {", "audit: {actorWait: 3s, ", 1) + fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [audited]}]
sinks:
  - name: jetstream
    actor: true
    payload: change
    nats: {url: %q, stream: {name: ACTORS, create: true}}
  - {name: kafka, actor: true, payload: change, content: structured, progress: 1s, kafka: {brokers: [%q], topic: %q}}
`, js.url(), k.Addr(), topic)
	b := startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	cs := clientset(t, a.cluster)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}
	if _, err := cs.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "audited"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "Group", Name: "system:serviceaccounts:audited"}},
	}
	if _, err := cs.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w := &actorUsers{t: t, audited: a, ids: map[string]bool{}, deletes: map[string]map[string]bool{}}
	var users []*writer
	for n := range 10 {
		users = append(users, w.user(cs, fmt.Sprint("user", n)))
	}
	b.waitReady()
	changes := int64(scale.Of(500, 5000))
	var group sync.WaitGroup
	var untilKilled atomic.Bool
	write := func(upTo int64) {
		for _, u := range users {
			group.Go(func() {
				for (w.written.Load() < upTo || untilKilled.Load()) && !t.Failed() {
					u.step()
				}
			})
		}
	}
	<-time.After(6 * time.Second) // a change that may be older than the process has no sole actor
	write(changes / 3)
	group.Wait()
	nothingWaits(b)
	untilKilled.Store(true)
	write(changes)
	eventually(t, 5*time.Minute, func() error {
		if n := w.written.Load(); n < 2*changes/3 {
			return fmt.Errorf("only %d writes", n)
		}
		if b.metric("deltabridge_actor_waiting_events", "sink=kafka") == 0 {
			return errors.New("no event waits for its actor")
		}
		return nil
	})
	b.kill()
	untilKilled.Store(false)
	b = startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	group.Wait()
	b.waitReady()
	if scale.Long() { // until then, audit events may be missing
		<-time.After(time.Minute)
		write(changes * 4 / 3)
		group.Wait()
	}
	last := users[0]
	last.id = "user0-last"
	o := last.send("POST", "", "application/json",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"last","annotations":{"by":"user0-last"}}}`)
	if o == nil {
		t.Fatal("the last object cannot be created")
	}
	eventually(t, time.Minute, func() error {
		isLast := func(r received) bool { return r.attributes["name"] == "last" }
		if !slices.ContainsFunc(js.read("ACTORS"), isLast) {
			return errors.New("the last event is missing")
		}
		return nil
	})
	nothingWaits(b)
	stop := 0
	eventually(t, time.Minute, func() error { // they wait only for a short time
		stop++
		last.id = "user0-stop" + itoa(stop)
		last.send("PATCH", "/last", "application/merge-patch+json", `{"metadata":{"annotations":{"by":"`+last.id+`"}}}`)
		for _, sink := range []string{"sink=jetstream", "sink=kafka"} {
			if b.metric("deltabridge_actor_waiting_events", sink) == 0 {
				return fmt.Errorf("%s: no event waits", sink)
			}
		}
		return nil
	})
	b.stop() // sends what waits
	w.judge("JetStream", level, js.read("ACTORS"))
	w.judge("Kafka", level, slices.Concat(readKafka(t, k.Addr(), topic)...))
}
