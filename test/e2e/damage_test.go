package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestADamagedSpill: events that wait on disk cannot be read back. All others arrive, and a gap event is where the lost
// ones would have been.
func TestADamagedSpill(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	for _, away := range []*destination{awayJetStream(t), awayKafka(t)} {
		t.Run(away.broker, func(t *testing.T) {
			cs := clientset(t, c)
			namespace := newNamespace(t, cs)
			config := fmt.Sprintf(
				"\nshutdownTimeout: 2s\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n%s",
				namespace,
				away.sink("away", "{events: 20, bytes: 1Mi}"),
			)
			dir := t.TempDir()
			b := startBridgeIn(t, dir, c.Kubeconfig(), config)
			b.waitListed()
			const word = "a-value-that-will-be-damaged"
			const objects = 200
			for n := range objects {
				cm := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", n)},
					Data:       map[string]string{"v": itoa(n)},
				}
				if n == objects/2 {
					cm.Data["v"] = word
				}
				if _, err := cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			truth := configMapHistory(t, c, namespace)
			eventually(t, time.Minute, func() error {
				if n := b.metric("deltabridge_spill_events"); n < objects-40 {
					return fmt.Errorf("%.0f events are spilled", n)
				}
				return nil
			})
			b.stop()
			segments, err := filepath.Glob(filepath.Join(dir, "state", "spill-away", "*.log"))
			if err != nil {
				t.Fatal(err)
			}
			damaged := false
			for _, file := range segments {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				damaged = damaged || bytes.Contains(data, []byte(word))
				if err := os.WriteFile(
					file,
					bytes.ReplaceAll(data, []byte(word), []byte(strings.ToUpper(word))),
					0o600,
				); err != nil {
					t.Fatal(err)
				}
			}
			if !damaged {
				t.Fatal("the event that is to be damaged is not on disk")
			}

			away.start()
			b = startBridgeIn(t, dir, c.Kubeconfig(), config)
			eventually(t, time.Minute, func() error { return b.reached(truth) })
			if n := b.metric("deltabridge_spill_lost_events_total"); n != 1 {
				t.Errorf("%.0f lost events are counted", n)
			}
			b.stop()
			lost := truth[objects/2]
			var found *received
			for _, r := range slices.Concat(away.read()...) {
				var info struct {
					Resource, Reason, To string
					Events               int
				}
				if r.attributes["type"] != "dev.deltabridge.gap" {
					continue
				}
				if err := json.Unmarshal(
					r.data,
					&info,
				); err != nil || info.Reason != "damaged" || info.Resource != "configmaps" || info.Events != 1 ||
					found != nil ||
					revision(t, info.To) < revision(t, lost.rv) {
					t.Errorf("%v, %s", err, r.data)
				}
				found = &r
			}
			if found == nil {
				t.Fatal("no gap event says that an event is lost")
			}
			judge(
				t,
				away.broker,
				slices.DeleteFunc(slices.Clone(truth), func(c change) bool { return c == lost }),
				"configmaps/"+namespace+"/",
				away.read()...)
			if away.broker == "JetStream" {
				sequence := away.read()[0]
				before := slices.IndexFunc(sequence, func(r received) bool { return r.resourceVersion() == truth[objects/2-1].rv })
				at := slices.IndexFunc(sequence, func(r received) bool { return r.id() == found.id() })
				if at != before+1 {
					t.Errorf("the gap event is at %d, and what was before the lost event at %d", at, before)
				}
			}
		})
	}
}
