package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/browser"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// TestPage: outages of both brokers begin and end while the live page is open in a browser, one inside the other. The
// page shows what waits, and the tail.
func TestPage(t *testing.T) {
	t.Parallel()
	screen := browser.Start(t)
	c, js, k := sharedCluster(t), startJetStream(t), kafka.NewForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridge(t, c.Kubeconfig(), toBoth(namespace, js.url(), k.Addr(), "page-"+namespace))
	b.waitReady()
	changes := startChanges(t, cs, namespace, 20, 10)
	tab := screen.Open(t, "http://"+b.addr, browser.Look{Width: 1280, Height: 900})
	tab.Wait("document.title.startsWith('ok') && document.body.classList.contains('live')")
	tab.Wait(`[...document.querySelectorAll('#flow .lane')].every(l => l.querySelector('b').textContent !== '0')`)

	// away waits until the page shows that these sinks do not deliver, and the others do.
	away := func(want string) {
		t.Helper()
		tab.Wait(
			`[...document.querySelectorAll('.lane:has(.problem)')].map(l => l.dataset.key).sort().join() === '` + want + `'`,
		)
		if want == "" {
			tab.Wait(`document.title.startsWith('ok')`)
			return
		}
		tab.Wait(`document.title.startsWith('waiting')`)
		tab.Wait(`Number(document.querySelector('#totals div:nth-child(3) dd').textContent.replace(',', '')) > 20`)
		tab.Wait(`document.querySelector('#totals').innerText.includes('≥')`)
	}
	js.stop()
	away("sink jetstream")
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	away("sink jetstream,sink kafka")
	js.start()
	away("sink kafka")
	if err := k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	away("")

	tab.Run("document.querySelector('#tail-form button').click()")
	tab.Wait("document.querySelectorAll('#tail-rows .event').length > 5")
	if text := tab.Text("#tail-rows .event"); !strings.Contains(text, namespace+"/") {
		t.Errorf("a row is %q", text)
	}
	changes.stop()
	for _, problem := range tab.Problems() {
		t.Error(problem)
	}
	b.stop()
	tab.Wait("document.title.startsWith('no connection')")
}

// viewer is somebody who looks at the live page from another machine.
type viewer struct{ *browser.Tab }

// use enters a token.
func (v viewer) use(token string) {
	v.Run("document.querySelector('#token-form input').value = '" + token + "'")
	v.Run("document.querySelector('#token-form').requestSubmit()")
}

// refused waits until the page shows why a token is not sufficient.
func (v viewer) refused(why string) {
	v.Wait("document.querySelector('#token-problem').textContent.includes('" + why + "')")
}

// startTail starts a tail, and stops the previous one.
func (v viewer) startTail() { v.Run("document.querySelector('#tail-form').requestSubmit()") }

// TestPageWithToken: the API server decides which viewers from elsewhere may see the tail. The rights that `bridge
// rbac` grants are sufficient to ask it. The tail is redacted as the sink is. A right that is withdrawn ends.
func TestPageWithToken(t *testing.T) {
	t.Parallel()
	screen := browser.Start(t)
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := "watch: [{resources: [configmaps], namespaces: [" + namespace + "]}]\n" +
		"redact: [{resources: [configmaps], paths: [data.token]}]\nsinks:\n" +
		"  - name: live\n    nats: {url: \"" + js.url() + "\", stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}\n"
	b := startBridge(t, withRights(t, c, "http: {ui: true}\n"+config), config)
	b.waitReady()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string]string{"token": "s3cr3t", "color": "green"},
	}
	if _, err := cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	// The browser resolves this name to the same machine, but the bridge does not know that.
	v := viewer{screen.Open(t, "http://bridge.localhost:"+port, browser.Look{Width: 1280, Height: 900})}
	v.Wait("document.title.startsWith('ok') && document.body.classList.contains('live')")
	if text := v.Text("#access"); !strings.Contains(text, "require") {
		t.Errorf("without a token: %q", text)
	}
	account := func(audience string, paths ...string) (name, token string) {
		t.Helper()
		return newAccount(t, c, audience, rbacv1.PolicyRule{NonResourceURLs: paths, Verbs: []string{"get"}})
	}
	_, other := account("other", "/ui/*")
	v.use(other)
	v.refused("not valid for the audience deltabridge")
	_, limited := account("deltabridge", "/ui/stream")
	v.use(limited)
	v.refused("may not get the non-resource URL /ui/tail")
	name, token := account("deltabridge", "/ui/tail")
	v.use(token)
	v.Wait("document.querySelector('#access').hidden")
	for n := 0; !browser.Eval[bool](v.Tab, "!!document.querySelector('#tail-rows details')"); n++ {
		object.Data["count"] = fmt.Sprint(n)
		if _, err := cs.CoreV1().ConfigMaps(namespace).Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		pause(t, time.Second/4)
	}
	v.Run("document.querySelector('#tail-rows details').open = true")
	if text := v.Text("#tail-rows"); !strings.Contains(text, `"color": "green"`) ||
		!strings.Contains(text, "hmac-sha256:") || strings.Contains(text, "s3cr3t") {
		t.Errorf("a row is %q", text)
	}

	if err := cs.RbacV1().ClusterRoleBindings().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error { // the API server notices the deletion after some time
		v.startTail()
		pause(t, time.Second)
		if text := v.Text("#token-problem"); !strings.Contains(text, "may not get the non-resource URL /ui/tail") {
			return fmt.Errorf("the problem is %q", text)
		}
		return nil
	})
	b.stop()
}
