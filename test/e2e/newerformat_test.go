package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/laterformat"
)

// TestNewerFormat: a newer version has written the checkpoint, or the events that wait on disk. The bridge changes nothing
// and says so until it is stopped. When the newer version runs again, it delivers what waits.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace, dir := newNamespace(t, cs), t.TempDir()
	config := fmt.Sprintf("watch: [{resources: [configmaps], namespaces: [%s]}]\n"+
		"sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true}}}]\n", namespace, js.url())
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	js.stop()
	if err := oneLife(t.Context(), cs, namespace, "waits", 3, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		if b.metric("deltabridge_queue_events") < 4 {
			return errors.New("not all events wait for JetStream")
		}
		return nil
	})
	b.stop()
	js.start()
	state := filepath.Join(dir, "state")
	for _, file := range []string{"checkpoint.db", "spill-jetstream"} {
		path := filepath.Join(state, file)
		laterformat.Write(t, path)
		before := contentOf(t, state)
		b = launchBridge(t, filepath.Join(dir, "bridge.yaml"))
		eventually(t, 20*time.Second, func() error {
			code, body, err := b.get("/readyz")
			if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(body, file+" has format 2") {
				return fmt.Errorf("%d %s %w", code, body, err)
			}
			return nil
		})
		out, errs, err := runBridge(t, "status", "--address", b.addr)
		if err == nil || !strings.Contains(out, "knows format 1") || !strings.Contains(out, "run the newer version again") {
			t.Errorf("bridge status: %v: %s%s", err, out, errs)
		}
		b.stop()
		for name, content := range contentOf(t, state) {
			if before[name] != content {
				t.Errorf("%s was changed", name)
			}
			delete(before, name)
		}
		if len(before) > 0 {
			t.Errorf("%d files were removed", len(before))
		}
		laterformat.Restore(t, path)
	}
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	truth := upTo(t, b, c, namespace)
	b.stop()
	judge(t, "JetStream", truth, "configmaps/"+namespace+"/", js.read("E2E"))
}

// contentOf returns the content of all files below a directory.
func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
