package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
)

// auditLog is what an API server notes of the requests of service accounts.
type auditLog struct{ policy, file string }

func newAuditLog(t *testing.T) *auditLog {
	t.Helper()
	dir := t.TempDir()
	log := &auditLog{filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")}
	const policy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["ResponseStarted", "ResponseComplete"],
		"rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}]}`
	if err := os.WriteFile(log.policy, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return log
}

func (l *auditLog) flags() []string {
	return []string{"--audit-policy-file=" + l.policy, "--audit-log-path=" + l.file, "--audit-log-mode=blocking"}
}

// requests counts what a user asked for: "verb resource", and "get resource/name".
func (l *auditLog) requests(t *testing.T, user string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(l.file)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range bytes.Lines(text) {
		var entry struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Name string }
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.User.Username != user || entry.ObjectRef.Resource == "" {
			continue
		}
		request := entry.Verb + " " + entry.ObjectRef.Resource
		if entry.Verb == "get" {
			request += "/" + entry.ObjectRef.Name
		}
		counts[request]++
	}
	return counts
}

// enriched is a running test: workloads in a namespace, and a bridge that watches their Pods and Events alone.
type enriched struct {
	t         *testing.T
	cs        kubernetes.Interface
	namespace string
	js        *jetStream
	b         *bridge
}

// enrichRollout: Pods tell their Deployment and their CronJob, Events what they are about, and all the labels of their
// namespace; also of what was deleted after its owners, or while the bridge was down. The API server is asked for none
// of it.
func enrichRollout(t *testing.T, c *cluster.Cluster, log *auditLog) {
	e := &enriched{t: t, cs: clientset(t, c), js: startJetStream(t)}
	e.namespace = newNamespace(t, e.cs)
	e.patch("namespaces", e.namespace, `{"metadata":{"labels":{"team":"blue"}}}`)
	eventually(t, 30*time.Second, func() error {
		_, err := e.cs.CoreV1().ServiceAccounts(e.namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	e.deploy("web", 1)
	e.job("nightly")
	e.waitPods(2)
	config := fmt.Sprintf(`
watch: [{resources: [pods, events], namespaces: [%s]}]
sinks:
  - name: attributes
    enrich: {owner: true, namespaceLabels: true, involvedObject: true}
    nats: {url: %q, subject: "k8s.{resource}", stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, e.namespace, e.js.url())
	kubeconfig := withRights(t, c, config)
	dir := t.TempDir()
	e.b = startBridgeIn(t, dir, kubeconfig, config)
	e.b.waitReady()
	e.deploy("api", 0)
	e.waitReplicaSets(2) // the first event of a Pod names the owners that the bridge knows by then
	e.scale("api", 1)
	e.waitPods(3)

	web := e.pods("app=web")[0]
	e.event(&web)
	e.expect(
		"added Event",
		"Deployment.apps/web",
		"team=blue",
		"app=web,pod-template-hash="+web.Labels["pod-template-hash"],
	)
	e.expect("added Pod "+web.Name, "Deployment.apps/web", "team=blue", "")
	e.expect("added Pod "+e.pods("app=api")[0].Name, "Deployment.apps/api", "team=blue", "")
	e.expect(
		"added Pod "+e.pods("batch.kubernetes.io/job-name=nightly-1")[0].Name,
		"CronJob.batch/nightly",
		"team=blue",
		"",
	)

	for _, s := range explainFor(t, filepath.Join(dir, "bridge.yaml"), "pods", e.namespace+"/"+web.Name).Sinks {
		tells := slices.ContainsFunc(
			s.Message.Headers,
			func(h header) bool { return h.Name == "ce-owner" && h.Value == "Deployment.apps/web" },
		)
		if !tells {
			t.Errorf("explain shows of %s: %v", s.Name, s.Message.Headers)
		}
	}

	// Labels are those of now. The owner goes first, and the Pod stays for a while.
	e.patch("namespaces", e.namespace, `{"metadata":{"labels":{"team":"green"}}}`)
	api := e.pods("app=api")[0].Name
	e.patch("pods", api, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	e.remove("api")
	e.waitReplicaSets(1)
	e.patch("pods", api, `{"metadata":{"finalizers":null}}`)
	e.expect("deleted Pod "+api, "Deployment.apps/api", "team=green", "")

	// All of it goes while the bridge is down.
	eventually(t, 20*time.Second, func() error {
		if waiting := e.b.metric("deltabridge_queue_events"); waiting > 0 {
			return fmt.Errorf("%.0f events are not settled", waiting)
		}
		return nil
	})
	e.b.waitCommits()
	e.b.kill()
	e.remove("web")
	eventually(t, time.Minute, func() error {
		if left := e.pods("app=web"); len(left) > 0 {
			return errors.New("the Pod is still there")
		}
		return nil
	})
	e.b = startBridgeIn(t, dir, kubeconfig, config)
	e.b.waitReady()
	e.expect("deleted Pod "+web.Name, "Deployment.apps/web", "team=green", "")
	if resumed := strings.Count(e.b.log.String(), resumedLine); resumed < 9 { // pods, events, six owners, namespaces
		t.Errorf("%d informers resumed", resumed)
	}
	e.b.stop()
	e.judgeControllers()
	requests := log.requests(t, nameOf(t, userOf(t, kubeconfig)))
	t.Logf("requests: %v", requests)
	for request, count := range requests {
		verb, target, _ := strings.Cut(request, " ")
		_, name, _ := strings.Cut(target, "/")
		if verb == "get" && name != "kube-system" && name != "deltabridge-probe" ||
			verb == "list" && target != "apiservices" && count > 3 { // two starts, and explain; those are listed again and again
			t.Errorf("%d times: %s", count, request)
		}
	}
	if requests["watch pods"] == 0 {
		t.Error("the audit log does not know the bridge")
	}
}

// nameOf is how the API server calls a user.
func nameOf(t *testing.T, user kubernetes.Interface) string {
	t.Helper()
	review, err := user.AuthenticationV1().
		SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

func (e *enriched) patch(resource, name, patch string) {
	e.t.Helper()
	request := e.cs.CoreV1().RESTClient().Patch(types.MergePatchType).Resource(resource).Name(name).Body([]byte(patch))
	if resource != "namespaces" {
		request = request.Namespace(e.namespace)
	}
	if err := request.Do(e.t.Context()).Error(); err != nil {
		e.t.Fatal(err)
	}
}

func (e *enriched) pods(selector string) []corev1.Pod {
	e.t.Helper()
	pods, err := e.cs.CoreV1().Pods(e.namespace).List(e.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		e.t.Fatal(err)
	}
	return pods.Items
}

func (e *enriched) waitPods(count int) {
	e.t.Helper()
	eventually(e.t, time.Minute, func() error {
		if n := len(e.pods("")); n != count {
			return fmt.Errorf("there are %d Pods", n)
		}
		return nil
	})
}

// waitReplicaSets waits until the bridge knows a number of ReplicaSets.
func (e *enriched) waitReplicaSets(count float64) {
	e.t.Helper()
	eventually(e.t, time.Minute, func() error {
		if known := e.b.metric("deltabridge_informer_objects", "resource=replicasets.apps"); known != count {
			return fmt.Errorf("the bridge knows %.0f ReplicaSets", known)
		}
		return nil
	})
}

func (e *enriched) deploy(name string, replicas int32) {
	e.t.Helper()
	if _, err := e.cs.AppsV1().
		Deployments(e.namespace).
		Create(e.t.Context(), deployment(name, replicas), metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *enriched) scale(deployment string, replicas int32) {
	e.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := e.cs.AppsV1().
		Deployments(e.namespace).
		Patch(e.t.Context(), deployment, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// remove deletes a Deployment, and the garbage collector what it owns.
func (e *enriched) remove(deployment string) {
	e.t.Helper()
	err := e.cs.AppsV1().
		Deployments(e.namespace).
		Delete(e.t.Context(), deployment, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		e.t.Fatal(err)
	}
}

// job makes a CronJob that is not due, and a Job of it.
func (e *enriched) job(name string) {
	e.t.Helper()
	template := corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "x", Image: "x"}},
		},
	}
	cron, err := e.cs.BatchV1().CronJobs(e.namespace).Create(e.t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule:    "0 0 1 1 *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	job := &batchv1.Job{Spec: batchv1.JobSpec{Template: template}}
	job.Name = name + "-1"
	job.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob")),
	}
	if _, err := e.cs.BatchV1().Jobs(e.namespace).Create(e.t.Context(), job, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// event reports something of a Pod, as a kubelet does.
func (e *enriched) event(pod *corev1.Pod) {
	e.t.Helper()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Namespace:  pod.Namespace,
			Name:       pod.Name,
			UID:        pod.UID,
		},
		Reason:  "Started",
		Message: "started",
	}
	if _, err := e.cs.CoreV1().Events(e.namespace).Create(e.t.Context(), event, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// expect waits for the last event that is so described, "operation kind [name]", and looks at what it says of others.
func (e *enriched) expect(description, owner, namespaceLabel, involved string) {
	e.t.Helper()
	eventually(e.t, 20*time.Second, func() error {
		var found *received
		all := e.js.read("E2E")
		for n := range all {
			a := all[n].attributes
			if a["kind"] == "Event" && a["name"] != "e2e" {
				continue // the controllers'
			}
			if text := a["operation"] + " " + a["kind"]; text == description || text+" "+a["name"] == description {
				found = &all[n]
			}
		}
		if found == nil {
			return fmt.Errorf("%s did not come", description)
		}
		a := found.attributes
		if a["owner"] != owner || a["owneruid"] == "" || a["involvedlabels"] != involved ||
			!strings.Contains(","+a["namespacelabels"]+",", ","+namespaceLabel+",") {
			return fmt.Errorf("%s has %v", description, a)
		}
		return nil
	})
}

// judgeControllers checks that Events of the controllers have an owner too.
func (e *enriched) judgeControllers() {
	e.t.Helper()
	for _, r := range e.js.read("E2E") {
		if r.attributes["kind"] == "Event" && r.attributes["name"] != "e2e" && r.attributes["owner"] != "" {
			return
		}
	}
	e.t.Error("no Event of the controllers has an owner")
}
