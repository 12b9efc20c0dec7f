package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
)

const whoPolicy = `rules:
  - {level: Metadata, resources: [{group: "", resources: [configmaps], resourceNames: [metadata-only]}]}
  - {level: RequestResponse, namespaces: [audited]}
  - {level: RequestResponse, resources: [{group: rbac.authorization.k8s.io, resources: [clusterroles]}]}
  - {level: None}
`

// users write objects in a namespace, and their names are the names of service accounts in it.
type users struct {
	t  *testing.T
	a  *audited
	cs kubernetes.Interface

	mu       sync.Mutex
	clients  map[string]rest.Interface
	deleters map[string][]string // who may have deleted an object, by uid
	want     map[string]string   // who made each change of an object of the story, by its name
}

func newUsers(t *testing.T, a *audited) *users {
	t.Helper()
	u := &users{
		t: t, a: a, cs: clientset(t, a.cluster), clients: map[string]rest.Interface{}, deleters: map[string][]string{},
		want: map[string]string{},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}
	if _, err := u.cs.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "audited"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "Group", Name: "system:serviceaccounts:audited"}},
	}
	if _, err := u.cs.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	u.client("default") // the account that Pods require
	return u
}

func (u *users) client(user string) rest.Interface {
	u.mu.Lock()
	defer u.mu.Unlock()
	if client := u.clients[user]; client != nil {
		return client
	}
	accounts := u.cs.CoreV1().ServiceAccounts("audited")
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: user}}
	if _, err := accounts.Create(u.t.Context(), object, metav1.CreateOptions{}); err != nil {
		u.t.Fatal(err)
	}
	token, err := accounts.CreateToken(u.t.Context(), user, &authv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(u.a.cluster.RESTConfig())
	config.BearerToken, config.QPS = token.Status.Token, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		u.t.Fatal(err)
	}
	u.clients[user] = client.CoreV1().RESTClient()
	return u.clients[user]
}

// The bodies of PATCH requests begin with one of these, and a space.
var patches = map[string]string{
	"merge": "application/merge-patch+json",
	"apply": "application/apply-patch+yaml",
	"json":  "application/json-patch+json",
}

// send sends a request about an object, and returns the response, or nil and the code of a failure. An item of headers
// is a name and a value with a colon.
func (u *users) send(user, verb, path, body string, headers ...string) (*metav1.PartialObjectMetadata, int32) {
	uri := path
	if !strings.HasPrefix(path, "/") {
		uri = "/api/v1/namespaces/audited/" + path
	}
	mediaType := "application/json"
	if kind, rest, found := strings.Cut(body, " "); found && patches[kind] != "" {
		mediaType, body = patches[kind], rest
	}
	r := u.client(user).Verb(verb).RequestURI(uri).SetHeader("Content-Type", mediaType)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.SetHeader(name, value)
	}
	if body != "" {
		r.Body([]byte(body))
	}
	raw, err := r.Do(u.t.Context()).Raw()
	if err != nil {
		status := apierrors.APIStatus(nil)
		if !errors.As(err, &status) || status.Status().Code/100 != 4 {
			u.t.Errorf("%s: %s %s %s: %v", user, verb, path, body, err)
			return nil, 0
		}
		return nil, status.Status().Code
	}
	var o struct {
		metav1.PartialObjectMetadata

		Details struct{ UID string }
		Items   []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		u.t.Errorf("%s: %v", raw, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if verb == "DELETE" {
		for _, item := range append(o.Items, o.PartialObjectMetadata) {
			u.deleters[string(item.UID)] = append(u.deleters[string(item.UID)], user)
		}
		u.deleters[o.Details.UID] = append(u.deleters[o.Details.UID], user)
	}
	return &o.PartialObjectMetadata, 0
}

// must sends a request that is answered with this code, or with success if the code is 0.
func (u *users) must(code int32, user, verb, path, body string, headers ...string) *metav1.PartialObjectMetadata {
	u.t.Helper()
	o, got := u.send(user, verb, path, body, headers...)
	if got != code || u.t.Failed() {
		u.t.Fatalf("%s: %s %s: %d instead of %d", user, verb, path, got, code)
	}
	return o
}

func configMap(name, more string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"` + more + `}}`
}

const (
	account    = "system:serviceaccount:audited:"
	asTable    = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
	aFinalizer = `,"finalizers":["deltabridge.dev/a"]`
	template   = `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
)

// sendStory sends requests, one after the other, and notes in u.want who made each change.
func (u *users) sendStory() {
	u.t.Helper()
	const maps, noFinalizers = "configmaps", `merge {"metadata":{"finalizers":null}}`
	label := func(value string) string { return `merge {"metadata":{"labels":{"l":"` + value + `"}}}` }
	create := func(user, name, more string) { u.must(0, user, "POST", maps, configMap(name, more)) }
	request := func(user, verb, name, body string) { u.must(0, user, verb, maps+name, body) }

	u.want["plain"] = "alice bob carol bob carol bob alice" // the name is used twice
	create("alice", "plain", "")
	request("bob", "PUT", "/plain", configMap("plain", `,"labels":{"l":"0"}`))
	request("carol", "PATCH", "/plain", label("1"))
	request("bob", "DELETE", "/plain", "")
	create("carol", "plain", "")
	request("bob", "PATCH", "/plain", `json [{"op":"add","path":"/data","value":{"k":"v"}}]`)
	request("alice", "DELETE", "/plain", "")

	u.want["no-op"] = "alice - dave"
	create("alice", "no-op", "")
	request("dave", "PATCH", "/no-op", `merge {"metadata":{"labels":null}}`)
	request("bob", "PATCH", "/no-op", label("1"))
	request("carol", "PATCH", "/no-op", label("1"))
	request("dave", "PATCH", "/no-op", label("2"))

	u.want["applied"] = "alice bob"
	request("alice", "PATCH", "/applied?fieldManager=a", "apply "+configMap("applied", ""))
	request("bob", "PATCH", "/applied?fieldManager=b", "apply "+configMap("applied", `,"labels":{"l":"1"}`))

	u.want["dry-run"] = "alice carol carol"
	create("alice", "dry-run", "")
	request("bob", "PATCH", "/dry-run?dryRun=All", label("1"))
	request("carol", "PATCH", "/dry-run?x=?dryRun=All", label("2")) // this is none
	request("bob", "PATCH", "/dry-run?fieldManager=f&dryRun=All", label("3"))
	request("bob", "DELETE", "/dry-run?dryRun=All", "")
	request("bob", "DELETE", "/dry-run", `{"dryRun":["All"]}`)
	request("bob", "DELETE", "?fieldSelector=metadata.name%3Ddry-run&dryRun=All", "")
	request("carol", "DELETE", "/dry-run?dryRun=All", `{"gracePeriodSeconds":0}`) // this is none: the body counts

	u.want["finalizer"] = "alice bob bob"
	create("alice", "finalizer", aFinalizer)
	request("bob", "DELETE", "/finalizer", "")
	request("carol", "DELETE", "/finalizer", "")
	request("dave", "PATCH", "/finalizer", noFinalizers)

	u.want["collected-1"], u.want["collected-2"] = "alice carol", "bob carol - carol"
	create("alice", "collected-1", `,"labels":{"l":"c"}`)
	create("bob", "collected-2", `,"labels":{"l":"c"}`+aFinalizer)
	request("carol", "DELETE", "?labelSelector=l%3Dc", "")
	request("bob", "PATCH", "/collected-2", label("1"))
	request("dave", "PATCH", "/collected-2", noFinalizers)

	u.want["orphaned"] = "alice bob -" // the second deletion adds a finalizer
	create("alice", "orphaned", aFinalizer)
	request("bob", "DELETE", "/orphaned", "")
	request("carol", "DELETE", "?fieldSelector=metadata.name%3Dorphaned", `{"propagationPolicy":"Orphan"}`)
	request("dave", "PATCH", "/orphaned", `merge {"metadata":{"labels":null}}`)

	u.want["impersonated"] = "alice/bob"
	u.must(0, "alice", "POST", maps, configMap("impersonated", ""),
		"Impersonate-User: "+account+"bob", "Impersonate-Group: system:serviceaccounts:audited")

	u.want["failed"] = "alice carol -" // a failed deletion can have set deletionTimestamp
	create("alice", "failed", "")
	u.must(409, "bob", "POST", maps, configMap("failed", ""))
	u.must(409, "bob", "PUT", maps+"/failed", configMap("failed", `,"resourceVersion":"1"`))
	u.must(422, "bob", "PATCH", maps+"/failed", label("-"))
	request("carol", "PATCH", "/failed", label("1"))
	u.must(409, "bob", "DELETE", maps+"/failed", `{"preconditions":{"resourceVersion":"1"}}`)
	request("carol", "DELETE", "/failed", "")
	u.must(404, "bob", "DELETE", maps+"/failed", "")

	u.hideVersions(label("1"), label("2"), label("3"))
	u.useSubresources(label("1"))
}

// hideVersions sends requests whose responses or audit events hide what they have written.
func (u *users) hideVersions(label1, label2, label3 string) {
	u.t.Helper()
	u.want["metadata-only"] = "alice - -"
	u.must(0, "alice", "POST", "configmaps", configMap("metadata-only", ""))
	u.must(0, "bob", "PATCH", "configmaps/metadata-only", label1)
	u.must(0, "carol", "DELETE", "configmaps/metadata-only", "")

	// The same, and then requests that change nothing.
	u.want["hidden"] = "alice - - dave"
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	u.must(0, "alice", "POST", roles, `{"metadata":{"name":"hidden"}}`)
	u.must(0, "bob", "PATCH", roles+"/hidden?includeObject=None", label1, asTable)
	u.must(0, "carol", "PATCH", roles+"/hidden", label1)
	u.must(400, "bob", "PATCH", roles+"/hidden?includeObject=x", label2, asTable) // but it writes
	u.must(0, "carol", "PATCH", roles+"/hidden", label2)
	u.must(0, "dave", "PATCH", roles+"/hidden", label3)
}

// useSubresources sends requests about subresources.
func (u *users) useSubresources(label1 string) {
	u.t.Helper()
	u.want["scaled"] = "alice bob carol dave"
	const deployments = "/apis/apps/v1/namespaces/audited/deployments"
	u.must(0, "alice", "POST", deployments, `{"metadata":{"name":"scaled"},"spec":{"replicas":1,`+
		`"selector":{"matchLabels":{"app":"x"}},"template":`+template+`}}`)
	u.must(0, "bob", "PATCH", deployments+"/scaled/scale", `merge {"spec":{"replicas":2}}`)
	u.must(0, "carol", "PATCH", deployments+"/scaled/status", `merge {"status":{"replicas":2}}`)
	u.must(0, "dave", "PATCH", deployments+"/scaled", label1)

	u.want["deleted"], u.want["evicted"] = "alice - carol dave - dave", "alice - carol - - - -"
	for _, name := range []string{"deleted", "evicted"} {
		u.must(0, "alice", "POST", "pods", strings.Replace(template, `{"labels"`, `{"name":"`+name+`","labels"`, 1))
		u.must(0, "bob", "POST", "pods/"+name+"/binding", `{"metadata":{"name":"`+name+`"},"target":{"name":"node"}}`)
		u.must(0, "carol", "PATCH", "pods/"+name, label1)
	}
	u.must(0, "dave", "DELETE", "pods/deleted", "")
	u.must(0, "dave", "POST", "pods/evicted/eviction", `{"metadata":{"name":"evicted"}}`)
	for _, name := range []string{"deleted", "evicted"} { // as a kubelet does
		u.must(0, "kubelet", "DELETE", "pods/"+name, `{"gracePeriodSeconds":0}`)
	}
}

// step sends random requests. Ten users compete for a few objects, and have some for themselves.
func (u *users) step(user string, n int) {
	const maps = "configmaps"
	name := fmt.Sprint("c", rand.IntN(8))
	id := fmt.Sprintf("%s-%d", user, n)
	by := `"annotations":{"by":"` + id + `"}`
	object := func(more string) string { return configMap(name, `,"labels":{"same":"x"},`+by+more) }
	send := func(verb, path, body string, headers ...string) *metav1.PartialObjectMetadata {
		o, _ := u.send(user, verb, maps+path, body, headers...)
		return o
	}
	switch kind := rand.IntN(120); {
	case n%60 == 0: // rarely, because it is not known who deleted an object that several users delete
		send("DELETE", "", "")
	case kind >= 98:
		name = id
		send("POST", "", object(""))
		send("DELETE", "/"+name, "")
	case kind < 18:
		send("POST", "", object([]string{"", "", aFinalizer}[rand.IntN(3)]))
	case kind < 36: // with the resourceVersion that it was read with, or without
		current := send("GET", "/"+name, "")
		if current == nil {
			return
		}
		more := ""
		if len(current.Finalizers) > 0 {
			more = aFinalizer
		}
		if kind%3 > 0 {
			more += `,"resourceVersion":"` + current.ResourceVersion + `"`
		}
		send("PUT", "/"+name, object(more))
	case kind < 54:
		send("PATCH", "/"+name, `merge {"metadata":{`+by+`}}`)
	case kind < 64: // without an effect
		send("PATCH", "/"+name, `merge {"metadata":{"labels":{"same":"x"}}}`)
	case kind < 67:
		send("PATCH", "/"+name+"?dryRun=All", `merge {"metadata":{`+by+`}}`)
	case kind < 68: // the response does not show the version
		send("PATCH", "/"+name+"?includeObject=None", `merge {"metadata":{`+by+`}}`, asTable)
	case kind < 78:
		send("PATCH", "/"+name+"?fieldManager=m&force=true", "apply "+object(""))
	case kind < 90:
		send("DELETE", "/"+name, "")
	default:
		send("PATCH", "/"+name, `merge {"metadata":{"finalizers":null,`+by+`}}`)
	}
}

// whoChangedWhat does what docs/integrations/who-changed-what.md says, and compares the result with what happened.
func whoChangedWhat(t *testing.T) {
	a, broker := startAudited(t, whoPolicy, ""), kafka.ForTest(t)
	prefix := fmt.Sprint("who-", os.Getpid(), "-")
	changes, requests := prefix+"changes", prefix+"audit"
	r := &recipe{t: t, dir: t.TempDir(), replace: strings.NewReplacer(
		"127.0.0.1:9092", broker.Addr(), "topics=changes,audit", "topics="+changes+","+requests, "topic: ", "topic: "+prefix,
		"resources: [", "resources: [clusterroles.rbac.authorization.k8s.io, ",
	)}
	r.page = r.read("../../docs/integrations/duckdb.md")
	connect := r.blocks("properties")[0]
	r.page = r.read("../../docs/integrations/who-changed-what.md")
	_, config, _ := strings.Cut(r.blocks("yaml")[0], "\nwatch:")
	b := startBridge(t, a.cluster.Kubeconfig(), fmt.Sprintf(a.keys, a.address)+"watch:"+config)
	b.waitReady()

	u := newUsers(t, a)
	var group sync.WaitGroup
	for n := range 10 {
		user := fmt.Sprint("user", n)
		group.Go(func() {
			for n := 1; n <= 300 && !t.Failed(); n++ {
				u.step(user, n)
			}
		})
	}
	group.Wait()
	u.sendStory()
	if err := a.cluster.StopAPIServer(t.Context()); err != nil { // sends what it has
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error {
		if n := b.metric("deltabridge_audit_journal_events") + b.metric("deltabridge_queue_events", "sink=changes"); n > 0 {
			return fmt.Errorf("%v events wait", n)
		}
		return nil
	})
	b.stop()
	partitions := slices.Concat(kafka.ReadAll(t, broker.Addr(), changes), kafka.ReadAll(t, broker.Addr(), requests))
	records := slices.Concat(partitions...)
	defer r.startConnect("events", []string{connect, r.blocks("properties")[0]})()
	var copied []byte
	eventually(t, time.Minute, func() (err error) {
		copied, err = os.ReadFile(filepath.Join(r.dir, "events.ndjson"))
		if n := bytes.Count(copied, []byte("\n")); n < len(records) {
			return fmt.Errorf("%w: there are %d of %d lines", err, n, len(records))
		}
		return err
	})
	r.write("events.ndjson", string(copied)+string(copied)) // Kafka Connect may write a line again
	u.judge(r)
}

const eachChange = `
SELECT name, operation, uid, username, impersonated,
  data->>'$.object.metadata.annotations.by' AS by, data->>'$.old.metadata.annotations.by' AS before,
  wrote = uid OR wrote IS NULL AS deletion
FROM who JOIN (SELECT DISTINCT ON (source, id) source, id, data FROM events) USING (source, id)
ORDER BY resourceversion::BIGINT;`

// judge runs the page's SQL.
func (u *users) judge(r *recipe) {
	u.t.Helper()
	results, err := r.query(pythonWith(u.t, "testdata/integrations/duckdb.txt"), append(r.blocks("sql"), eachChange)...)
	if err != nil || len(results) != 2 || len(results[0]) != 20 {
		u.t.Fatalf("%v: %v", err, results)
	}
	story, known, unknown := map[string]string{}, map[string]int{}, map[string]int{}
	for _, row := range results[1] {
		text := func(column string) string {
			value, _ := row[column].(string)
			return strings.TrimPrefix(value, account)
		}
		name, operation, user := text("name"), text("operation"), text("username")
		if _, found := u.want[name]; found {
			if story[name] += " " + cmp.Or(user, "-"); text("impersonated") != "" {
				story[name] += "/" + text("impersonated")
			}
			continue
		}
		by, _, _ := strings.Cut(text("by"), "-")
		switch {
		case user == "":
			unknown[operation]++
			continue
		case row["deletion"] == true && !slices.Contains(u.deleters[text("uid")], user),
			row["deletion"] != true && text("by") != text("before") && user != by:
			u.t.Errorf("wrong: %v", row)
		}
		known[operation]++
	}
	for name, want := range u.want {
		if got := strings.TrimSpace(story[name]); got != want {
			u.t.Errorf("%s was changed by %s, not by %s", name, want, got)
		}
	}
	u.t.Logf("known: %v, unknown: %v", known, unknown)
	if unknown["added"] > 0 || known["updated"] < unknown["updated"] || known["deleted"] < unknown["deleted"] {
		u.t.Error("too little is known")
	}
}
