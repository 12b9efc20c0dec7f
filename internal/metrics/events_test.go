package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What exceeds the number of series is counted without its namespace, and at last without its reason. Nothing is lost.
func TestKubernetesEventsAreBounded(t *testing.T) {
	k := New("", "").KubernetesEvents()
	series := func(want int) {
		t.Helper()
		if got := testutil.CollectAndCount(k.total); got != want {
			t.Errorf("%d series, want %d", got, want)
		}
	}
	add := func(namespace, reason, kind string) { k.Add(EventLabels{namespace, reason, kind}, 2) }
	count := func(namespace, reason, kind string, want float64) {
		t.Helper()
		expect(t, namespace+" "+reason, k.total.WithLabelValues(namespace, reason, kind), want)
	}
	for n := range 1000 {
		add(fmt.Sprint("ns-", n), "Started", "Normal")
	}
	add("ns-7", "Started", "Normal")
	series(1000)
	count("ns-7", "Started", "Normal", 4)

	for n := range 500 {
		add(fmt.Sprint("late-", n), "Started", "Normal")
		add("ns-1", fmt.Sprint("reason-", n), "Warning")
	}
	add("ns-8", "Started", "Normal")
	count("ns-8", "Started", "Normal", 4)
	count("other", "Started", "Normal", 1000)
	count("other", "reason-1", "Warning", 2)
	count("other", "other", "Warning", 2*(500-199))
	series(1201)

	add("a", "b", "Odd")
	count("other", "other", "other", 2)
	series(1202)
}

func TestOddKubernetesEvents(t *testing.T) {
	k := New("", "").KubernetesEvents()
	k.Add(EventLabels{"a", strings.Repeat("r", 128), "Normal"}, 1)
	k.Add(EventLabels{"a", strings.Repeat("r", 129), "Odd"}, 1)
	k.Add(EventLabels{"", "", ""}, 1)
	expect(t, "long", k.total.WithLabelValues("a", strings.Repeat("r", 128), "Normal"), 1)
	expect(t, "too long", k.total.WithLabelValues("a", "other", "other"), 1)
	expect(t, "empty", k.total.WithLabelValues("", "", "other"), 1)
	if got := testutil.CollectAndCount(k.total); got != 3 {
		t.Errorf("%d series", got)
	}
}
