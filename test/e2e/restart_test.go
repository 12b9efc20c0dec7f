package e2e

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// readBackLine is what a bridge logs that has read messages back.
var readBackLine = regexp.MustCompile(`.*msg="read the stream back".* messages=[1-9].*`)

// TestRestartWithManyObjects: a restart lists nothing, sends nothing, and is ready at once.
func TestRestartWithManyObjects(t *testing.T) {
	t.Parallel()
	c, js, k := cluster.ForTest(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	objects := scale.Of(3000, 20_000)
	if err := createMany(t.Context(), cs, namespace, objects); err != nil {
		t.Fatal(err)
	}
	const topic = "restart-with-many"
	config, dir := toBoth(namespace, js.url(), k.Addr(), topic), t.TempDir()
	lists := listRequests(t, c)
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	eventually(t, 2*time.Minute, b.ready)
	truth := upTo(t, b, c, namespace)
	b.waitCommits() // so that the bridge knows that all of the list was delivered
	b.stop()
	if listRequests(t, c) == lists { // or none would ever be seen
		t.Error("the list of the first start is not among the requests that are counted")
	}
	held := len(js.read("E2E")) + recordsOf(t, k, topic)
	lists = listRequests(t, c)

	began := time.Now()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	eventually(t, time.Minute, b.ready)
	took := time.Since(began)
	t.Logf("ready after %s with %d objects", took.Round(time.Millisecond), objects)
	if !raceDetector && took > 2*time.Second { // docs/delivery.md
		t.Errorf("ready after %s", took)
	}
	eventually(t, 10*time.Second, func() error { return b.reached(truth) })
	if more := listRequests(t, c) - lists; more != 0 {
		t.Errorf("the restart read the ConfigMaps %.0f times by LIST or watch-list", more)
	}
	if !strings.Contains(b.log.String(), resumedLine) {
		t.Error("the watch was not resumed")
	}
	if line := readBackLine.FindString(b.log.String()); line != "" {
		t.Errorf("what was sent before a normal stop was read back: %s", line)
	}
	b.stop()
	if n := len(js.read("E2E")) + recordsOf(t, k, topic); n != held {
		t.Errorf("the restart sent %d events", n-held)
	}
}

func createMany(ctx context.Context, cs kubernetes.Interface, namespace string, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for n := range count {
		group.Go(func() error { return oneLife(ctx, cs, namespace, fmt.Sprintf("c-%d", n), 0, false) })
	}
	return group.Wait()
}

// listRequests is how often the API server was asked for all ConfigMaps: by LIST, or by a watch that begins with the
// initial events (a watch-list), which it counts as WATCH.
func listRequests(t *testing.T, c *cluster.Cluster) (sum float64) {
	t.Helper()
	data, err := clientset(t, c).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"apiserver_request_total", "apiserver_watch_list_duration_seconds"} {
		for _, m := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["resource"] == "configmaps" && (labels["verb"] == "LIST" || m.GetHistogram() != nil) {
				sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// recordsOf is how many records a topic holds.
func recordsOf(t *testing.T, k *kafka.Broker, topic string) (count int) {
	t.Helper()
	for _, partition := range readKafka(t, k.Addr(), topic) {
		count += len(partition)
	}
	return count
}
