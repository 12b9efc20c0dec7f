package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// hidden is the values that a test wrote, in each form in which they could leak.
type hidden struct {
	t     *testing.T
	forms [][]byte
}

// value makes a new one. It is random, so that no compression hides it from a search.
func (h *hidden) value() string {
	v := rand.Text() + rand.Text()
	h.forms = append(h.forms, []byte(v))
	for shift := range 3 { // base64 of the value inside of a larger text
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + v))
		h.forms = append(h.forms, []byte(encoded[4:len(encoded)-4]))
	}
	return v
}

// in reports whether data holds one of them.
func (h *hidden) in(data []byte) bool {
	for _, form := range h.forms {
		if bytes.Contains(data, form) {
			return true
		}
	}
	return false
}

// files gives those below a folder that hold one.
func (h *hidden) files(folder string) (found []string) {
	h.t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() { // a socket can't be read
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if h.in(data) {
			found = append(found, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// process fails the test if what a bridge shows of itself holds one.
func (h *hidden) process(b *bridge) {
	h.t.Helper()
	for _, page := range []string{"/metrics", "/readyz"} {
		_, body, err := b.get(page)
		if err != nil {
			h.t.Fatal(err)
		}
		if h.in([]byte(body)) {
			h.t.Errorf("a value is in %s", page)
		}
	}
}

// output fails the test if what a bridge wrote holds one.
func (h *hidden) output(b *bridge) {
	h.t.Helper()
	if h.in([]byte(b.log.String())) {
		h.t.Error("a value is in the log")
	}
	if h.in([]byte(b.stdout.String())) {
		h.t.Error("a value is in the standard output")
	}
}

// rows fails the test if a checkpoint holds one, whatever its compression.
func (h *hidden) rows(folder string) {
	h.t.Helper()
	s, err := checkpoint.Open(checkpoint.Options{Path: folder, ClusterName: "e2e"})
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close()
	states, err := s.States()
	if err != nil || len(states) < 2 {
		h.t.Fatal(states, err)
	}
	count := 0
	for _, state := range states {
		_, objects, err := s.Load(state.Source.Name)
		if err != nil {
			h.t.Fatal(err)
		}
		count += len(objects)
		for _, o := range objects {
			if h.in(o.Raw) {
				h.t.Errorf("the row of %s %s holds a value", o.Kind(), o.Name)
			}
		}
	}
	if count < 3 {
		h.t.Errorf("the checkpoint has %d rows", count)
	}
}

// write creates or updates a Secret and a ConfigMap that hold new values wherever values are to be hidden.
func (h *hidden) write(cs kubernetes.Interface, namespace, name string) {
	h.t.Helper()
	v := h.value()
	applied, err := json.Marshal(
		map[string]any{
			"data":       map[string]string{"a": base64.StdEncoding.EncodeToString([]byte(v))},
			"stringData": map[string]string{"b": v},
		},
	)
	if err != nil {
		h.t.Fatal(err)
	}
	meta := metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{"on": "yes"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)},
	}
	secret := &corev1.Secret{
		ObjectMeta: meta,
		Data:       map[string][]byte{"a": []byte(v), "number": []byte("4711")},
		StringData: map[string]string{"b": "\"" + h.value() + "\n\u00fc"},
	}
	secrets := cs.CoreV1().Secrets(namespace)
	if _, err = secrets.Create(h.t.Context(), secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(h.t.Context(), secret, metav1.UpdateOptions{})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"token": h.value(), "plain": "seen"}}
	maps := cs.CoreV1().ConfigMaps(namespace)
	if _, err = maps.Create(h.t.Context(), cm, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(h.t.Context(), cm, metav1.UpdateOptions{})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// handedOver waits until nothing waits for a sink and the last change of a Secret was read.
func handedOver(t *testing.T, b *bridge, cs kubernetes.Interface, namespace string) {
	t.Helper()
	b.waitReady()
	list, err := cs.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var last float64
	if _, err := fmt.Sscan(list.ResourceVersion, &last); err != nil {
		t.Fatal(err)
	}
	// A change that follows brings the informer past all that counts.
	if _, err := cs.CoreV1().
		Secrets(namespace).
		Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "mark-"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if seen := b.seen("secrets"); seen <= last {
			return fmt.Errorf("the informer is at %.0f of %.0f", seen, last)
		}
		if n := b.metric("deltabridge_queue_events") + b.metric("deltabridge_spill_events"); n > 0 {
			return fmt.Errorf("%.0f events wait", n)
		}
		return nil
	})
}

// TestSecretsNeverLeave: values in Secrets, in last-applied-configuration and where `redact` says are nowhere but in
// the cluster: not in what brokers hold, not on the disk, not in what the bridge says of itself. Through an outage that
// spills, kill -9 and a restart.
func TestSecretsNeverLeave(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	proxy := sinktest.NewProxy(t, js.addr())
	cs := clientset(t, c)
	namespace, dir := newNamespace(t, cs), t.TempDir()
	topic := "secrets-" + namespace
	config := fmt.Sprintf(`
watch: [{resources: [secrets, configmaps], namespaces: [%s]}]
redact: [{resources: [configmaps], paths: [data.token]}]
sinks:
  - name: change
    payload: change
    content: structured
    filters: # a failing expression is one that passes
      - {resources: [secrets], when: "timestamp(object.data.a) > timestamp(0)"}
      - {resources: [configmaps], when: "timestamp(object.?data.?token.orValue('none')) > timestamp(0)"}
    buffer: {events: 10, bytes: 64Ki}
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
  - name: object
    kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 3, replicationFactor: 1}}
  - {name: metadata, payload: metadata, stdout: {}}
`, namespace, "nats://"+proxy.Addr(), k.Addr(), topic)
	h := &hidden{t: t}
	for n := range 3 {
		h.write(cs, namespace, "first-"+itoa(n))
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	for n := range 4 {
		h.write(cs, namespace, "first-"+itoa(n)) // updates three
	}
	handedOver(t, b, cs, namespace)
	proxy.Freeze()
	proxy.Cut()
	for n := range 20 {
		h.write(cs, namespace, "outage-"+itoa(n%10))
	}
	if err := cs.CoreV1().Secrets(namespace).Delete(t.Context(), "first-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if b.metric("deltabridge_spill_events", "sink=change") < 20 {
			return errors.New("nothing is spilled yet")
		}
		return nil
	})
	h.process(b)
	b.kill()
	if found := h.files(dir); len(found) > 0 {
		t.Errorf("after kill -9 values are in %v", found)
	}
	h.output(b)
	if err := cs.CoreV1().Secrets(namespace).Delete(t.Context(), "first-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	proxy.Thaw()
	handedOver(t, b, cs, namespace)
	h.process(b)
	b.stop()
	h.output(b)
	if found := append(h.files(dir), h.files(js.dir)...); len(found) > 0 {
		t.Errorf("values are in %v", found)
	}
	h.rows(filepath.Join(dir, "state"))
	if !strings.Contains(b.log.String(), "filter expression failed") {
		t.Error("no filter failed, so that nothing is shown about what is logged of one")
	}
	all := js.read("E2E")
	for _, partition := range readKafka(t, k.Addr(), topic) {
		all = append(all, partition...)
	}
	fingerprints := 0
	for _, r := range all {
		if h.in(r.data) || h.in(fmt.Append(nil, r.attributes)) {
			t.Fatalf("a value is in %s: %.300s", r.attributes, r.data)
		}
		fingerprints += bytes.Count(r.data, []byte("hmac-sha256:"))
	}
	if len(all) < 60 || fingerprints < 3*len(all)/2 {
		t.Errorf("%d events with %d fingerprints", len(all), fingerprints)
	}
	t.Logf("%d values in %d events with %d fingerprints, none in clear", len(h.forms)/4, len(all), fingerprints)
}

// TestSecretsPlainForOneSink: that one gets values as they are, also those of an old state after a restart, and the
// other one does not; nor does the disk hold any.
func TestSecretsPlainForOneSink(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace, dir := newNamespace(t, cs), t.TempDir()
	sink := func(name, more string) string {
		return fmt.Sprintf(
			"  - name: %[1]s\n    filters: [{when: \"object.metadata.?labels.?on.orValue('yes') == 'yes'\"}]\n    nats: {url: %[2]q, subject: \"%[1]s.{resource}.{namespace}.{name}\", stream: {name: %[1]s, create: true, subjects: [\"%[1]s.>\"]}}\n%[3]s",
			name,
			js.url(),
			more,
		)
	}
	config := fmt.Sprintf(
		"\nwatch: [{resources: [secrets, configmaps], namespaces: [%s]}]\nredact: [{paths: [data.token]}]\nsinks:\n",
		namespace,
	) +
		sink(
			"hidden",
			"",
		) + sink(
		"plain",
		"    secrets: plain\n",
	)
	h := &hidden{t: t}
	for n := range 3 {
		h.write(cs, namespace, "s-"+itoa(n))
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	handedOver(t, b, cs, namespace)
	b.stop()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	// The last state that passed comes from the checkpoint.
	patch := []byte(`{"metadata":{"labels":{"on":"no"}}}`)
	if _, err := cs.CoreV1().
		Secrets(namespace).
		Patch(t.Context(), "s-0", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	handedOver(t, b, cs, namespace)
	h.process(b)
	b.stop()
	h.output(b)
	if found := h.files(filepath.Join(dir, "state")); len(found) > 0 {
		t.Errorf("values are in %v", found)
	}
	kinds := map[string]int{}
	for _, name := range []string{"hidden", "plain"} {
		for _, r := range js.read(name) {
			if h.in(r.data) {
				kinds[name+" "+r.attributes["operation"]+" "+r.attributes["resource"]+r.attributes["leftfilter"]]++
			}
		}
	}
	want := map[string]int{"plain added secrets": 3, "plain added configmaps": 3, "plain deleted secretstrue": 1}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("clear values in %v, want %v", kinds, want)
	}
	h.rows(filepath.Join(dir, "state"))
}
