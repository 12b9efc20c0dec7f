//go:build unix

package audit

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/cluster"
)

const (
	pageDir  = "/etc/kubernetes/audit" // where the page has the files of the API server
	pageHost = "10.96.0.50:8443"       // where it has the intake
	pageName = "deltabridge-audit.deltabridge.svc"
	secret   = "hunter2-hunter2-hunter2-" // its Base64 has no padding
)

// flagRow matches a row of the page's table of flags: the flag, its default, and the value to set.
var flagRow = regexp.MustCompile(
	"(?m)^\\| `(--audit-[a-z-]+)` \\| (?:`([^`]+)`|none) \\| (?:`([^`]+)`|the default) \\|",
)

// TestPage: an API server that is configured as docs/audit.md says sends what the page says, and no secret value.
func TestPage(t *testing.T) {
	p := readPage(t)
	dir := t.TempDir()
	authority := newAuthority(t, "intake")
	journal := openJournal(t, newDir(t))
	configure := p.install(t, dir, authority, servePage(t, authority, journal, dir))
	configure(p.withCertificate)
	var log string
	c := cluster.ForTest(t, func(o *cluster.Options) {
		log = filepath.Join(o.Dir, "apiserver.log")
		for _, flag := range p.flags {
			o.APIServerFlags = append(o.APIServerFlags, strings.ReplaceAll(flag, pageDir, dir))
		}
	})
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	token := useEveryRule(t, client)
	if err = c.StopAPIServer(t.Context()); err == nil { // sends what it has
		configure(p.withToken)
		err = c.StartAPIServer(t.Context())
	}
	if err == nil {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "by-token"}}
		_, err = client.CoreV1().ConfigMaps("audited").Create(t.Context(), object, metav1.CreateOptions{})
	}
	if err == nil {
		err = c.StopAPIServer(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	checkEvents(t, journal, token)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "lenient") { // the API server only warns about fields that do not exist
		t.Error("the API server has ignored a part of the policy, see its log")
	}
}

// auditPage is what docs/audit.md shows.
type auditPage struct {
	flags                      []string // all of the table
	policy                     string
	withCertificate, withToken string // kubeconfigs
}

// readPage reads the page. The example of flags must set those whose value is not the default, and the policy must be
// the one of examples.
func readPage(t *testing.T) (p auditPage) {
	t.Helper()
	text, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../examples/kube-apiserver/audit-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set string
	for _, row := range flagRow.FindAllStringSubmatch(string(text), -1) {
		flag, byDefault, value := row[1], row[2], row[3]
		if value == "" {
			value = byDefault
		} else {
			set += flag + "=" + value + "\n"
		}
		p.flags = append(p.flags, flag+"="+value)
	}
	blocks := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^```[a-z]+\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		for _, mark := range []string{"--audit-policy-file=", "kind: Policy", "client-certificate:", "tokenFile:"} {
			if strings.Contains(m[1], mark) {
				blocks[mark] = m[1]
			}
		}
	}
	p.policy, p.withCertificate, p.withToken = blocks["kind: Policy"], blocks["client-certificate:"], blocks["tokenFile:"]
	if p.withCertificate == "" || p.withToken == "" || len(p.flags) < 10 {
		t.Fatalf("the page lacks flags or kubeconfigs: %q", p.flags)
	}
	if blocks["--audit-policy-file="] != set {
		t.Errorf("the example of flags is\n%s, the table has\n%s", blocks["--audit-policy-file="], set)
	}
	if p.policy != string(example) {
		t.Errorf("the policy of the page is not that of examples:\n%s", p.policy)
	}
	return p
}

// servePage starts an intake for the names and the token of the page, and returns its address.
func servePage(t *testing.T, authority *certs.Authority, j *Journal, dir string) (address string) {
	t.Helper()
	o := ServerOptions{
		Address: "127.0.0.1:0", ClientCAFile: filepath.Join(dir, "ca.crt"), Logger: slog.New(slog.DiscardHandler),
	}
	writeFile(t, o.ClientCAFile, string(authority.PEM()))
	var err error
	o.CertFile, o.KeyFile, err = authority.IssueFiles(
		t.TempDir(),
		certs.Options{Name: "intake", Hosts: []string{pageName}},
	)
	if err != nil {
		t.Fatal(err)
	}
	o.Handler, _ = newHandler(t, j, func(h *HandlerOptions) { h.Clients, h.Names = true, []string{"kube-apiserver"} })
	url, _ := start(t, o)
	return strings.TrimPrefix(url, "https://")
}

// install writes the files of the API server to a directory. The function that it returns writes the kubeconfig.
func (p auditPage) install(t *testing.T, dir string, a *certs.Authority, address string) (configure func(string)) {
	t.Helper()
	if _, _, err := a.IssueFiles(dir, certs.Options{Name: "kube-apiserver"}); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "policy.yaml"), p.policy)
	writeFile(t, filepath.Join(dir, "token"), token)
	return func(kubeconfig string) {
		t.Helper()
		if strings.Count(kubeconfig, pageHost) != 1 || strings.Count(kubeconfig, pageName) != 1 {
			t.Fatalf("not for the intake of the page:\n%s", kubeconfig)
		}
		kubeconfig = strings.NewReplacer(pageHost, address, pageDir, dir).Replace(kubeconfig)
		writeFile(t, filepath.Join(dir, "webhook.yaml"), kubeconfig)
	}
}

// useEveryRule sends requests for each rule of the policy. It returns a token of a service account.
func useEveryRule(t *testing.T, client *kubernetes.Clientset) (token string) {
	t.Helper()
	ctx, core, in := t.Context(), client.CoreV1(), "audited"
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: in} }
	var create metav1.CreateOptions
	must(core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}, create))

	object := &corev1.Secret{ObjectMeta: named("s"), StringData: map[string]string{"password": secret}}
	stored, err := core.Secrets(in).Create(ctx, object, create)
	must(stored, err)
	stored.Data["password"] = []byte(secret + secret)
	must(core.Secrets(in).Update(ctx, stored, metav1.UpdateOptions{}))
	patch := []byte(`{"stringData":{"password":"` + secret + `"}}`)
	must(core.Secrets(in).Patch(ctx, "s", types.MergePatchType, patch, metav1.PatchOptions{}))
	must(core.Secrets(in).List(ctx, metav1.ListOptions{}))
	must(nil, core.Secrets(in).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))

	must(core.ServiceAccounts(in).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("robot")}, create))
	issued, err := core.ServiceAccounts(in).CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, create)
	must(issued, err)
	token = issued.Status.Token
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	must(client.AuthenticationV1().TokenReviews().Create(ctx, review, create))

	must(core.ConfigMaps(in).Create(ctx, &corev1.ConfigMap{ObjectMeta: named("c")}, create))
	patch = []byte(`{"data":{"a":"b"}}`)
	must(core.ConfigMaps(in).Patch(ctx, "c", types.MergePatchType, patch, metav1.PatchOptions{}))
	must(nil, core.ConfigMaps(in).Delete(ctx, "c", metav1.DeleteOptions{}))
	pod := &corev1.Pod{ObjectMeta: named("p"), Spec: corev1.PodSpec{
		ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "web", Image: "nginx:1.29"}},
	}}
	must(core.Pods(in).Create(ctx, pod, create))
	patch = []byte(`{"status":{"phase":"Running"}}`)
	must(core.Pods(in).Patch(ctx, "p", types.MergePatchType, patch, metav1.PatchOptions{}, "status"))
	exec := core.RESTClient().Get().Namespace(in).Resource("pods").Name("p").SubResource("exec").Param("command", "id")
	if exec.Do(ctx).Error() == nil {
		t.Error("there is no kubelet, so this must fail")
	}

	must(client.CoordinationV1().Leases(in).Create(ctx, &coordinationv1.Lease{ObjectMeta: named("l")}, create))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: named("e"), AddressType: discoveryv1.AddressTypeIPv4}
	must(client.DiscoveryV1().EndpointSlices(in).Create(ctx, slice, create))
	happened := &corev1.Event{ObjectMeta: named("e"), InvolvedObject: corev1.ObjectReference{Namespace: in, Name: "p"}}
	must(core.Events(in).Create(ctx, happened, create))
	return token
}

// checkEvents compares the events of the namespace with what the page says, and looks for secret values in all events.
func checkEvents(t *testing.T, j *Journal, token string) {
	t.Helper()
	records, err := j.Read(t.Context(), 1, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	levels := map[string]string{}
	for _, r := range records {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for _, value := range []string{
			secret, base64.StdEncoding.EncodeToString([]byte(secret)), token, "managedFields",
		} {
			if strings.Contains(string(r.Event.Raw), value) {
				t.Errorf("this event contains %s: %s", value, r.Event.Raw)
			}
		}
		if o := r.Event.Object; o.Namespace == "audited" {
			verb, level := levelOf(t, r.Event)
			request := strings.Join([]string{verb, o.Resource, o.Name, o.Subresource}, " ")
			levels[strings.TrimRight(request, " ")] = level
		}
	}
	const metadata, whole = "Metadata", "RequestResponse uid resourceVersion"
	want := map[string]string{
		"create secrets s": metadata, "update secrets s": metadata, "patch secrets s": metadata,
		"deletecollection secrets": metadata, "create serviceaccounts robot token": metadata, "get pods p exec": metadata,
		"create configmaps c": whole, "patch configmaps c": whole, "delete configmaps c": "RequestResponse uid",
		"create pods p": whole, "patch pods p status": whole, "create serviceaccounts robot": whole,
		"create configmaps by-token": whole,
	}
	if !maps.Equal(levels, want) {
		t.Errorf("events of the namespace:\n%v, want\n%v", levels, want)
	}
}

// levelOf returns the verb and the level of an event, and what its response has.
func levelOf(t *testing.T, e Event) (verb, level string) {
	t.Helper()
	var got struct {
		Verb, Level                   string
		RequestObject, ResponseObject json.RawMessage
	}
	var object struct {
		Metadata metav1.ObjectMeta
		Details  struct{ UID string }
	}
	err := json.Unmarshal(e.Raw, &got)
	if err == nil && got.ResponseObject != nil {
		err = json.Unmarshal(got.ResponseObject, &object)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, e.Raw)
	}
	isSession := e.Object.Subresource == "exec" // has another event at its start
	if e.Stage != "ResponseComplete" && !isSession ||
		got.Level == "Metadata" && (got.RequestObject != nil || got.ResponseObject != nil) {
		t.Errorf("%s", e.Raw)
	}
	level = got.Level
	if object.Metadata.UID != "" || object.Details.UID != "" {
		level += " uid"
	}
	if object.Metadata.ResourceVersion != "" {
		level += " resourceVersion"
	}
	return got.Verb, level
}
