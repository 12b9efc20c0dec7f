package e2e

import (
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/test/browser"
)

// TestPage: an outage of a broker begins and ends while the live page is open in a browser. The page shows what waits,
// which objects change most, the tail, and the explanation of an object.
func TestPage(t *testing.T) {
	t.Parallel()
	screen := browser.Start(t)
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridge(t, c.Kubeconfig(), "watch: [{resources: [configmaps], namespaces: ["+namespace+"]}]\nsinks:\n"+
		"  - name: live\n    nats: {url: \""+js.url()+"\", stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}\n")
	b.waitReady()
	changes := startChanges(t, cs, namespace, 20, 10)
	tab := screen.Open(t, "http://"+b.addr, browser.Look{Width: 1280, Height: 900})
	tab.Wait("document.title.startsWith('ok') && document.body.classList.contains('live')")
	tab.Wait(`!document.querySelector('#flow .lane b').textContent.startsWith('0')`)

	js.stop()
	tab.Wait(`document.title.startsWith('waiting') && document.querySelector('.lane .problem')`)
	tab.Wait(`Number(document.querySelector('#totals div:nth-child(3) dd').textContent.replace(',', '')) > 20`)
	tab.Wait(`document.querySelector('#totals').innerText.includes('≥')`)
	js.start()
	tab.Wait(`document.title.startsWith('ok') && !document.querySelector('.lane .problem')`)

	tab.Wait("document.querySelector('#objects a')")
	browser.Eval[bool](tab, "document.querySelector('#objects a').click() || true")
	// The object may just have been deleted.
	tab.Wait("document.querySelector('#explanation h3') || " +
		"document.querySelector('#explanation .problem') && document.querySelector('#objects a').click()")
	if text := tab.Text("#explanation"); !strings.Contains(text, "k8s.e2e.core.configmaps."+namespace) {
		t.Errorf("the explanation is %q", text)
	}
	browser.Eval[bool](tab, "document.querySelector('#tail-form button').click() || true")
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
