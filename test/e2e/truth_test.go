package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func itoa(n int) string { return strconv.Itoa(n) }

// change is one revision of etcd, as an event names it.
type change struct {
	subject string // <resource>[.<group>]/<namespace>/<name>
	rv      string
	deleted bool
}

// created has the revisions at which the namespaces of the tests were created: a shared cluster has a long history.
var created sync.Map

// configMapHistory reads from etcd all revisions of a namespace's ConfigMaps.
func configMapHistory(t *testing.T, c *cluster.Cluster, namespace string) []change {
	t.Helper()
	return history(t, c, "configmaps", "configmaps", namespace)
}

// history reads from etcd all revisions of a namespace's objects of a resource, which is stored under a path.
func history(t *testing.T, c *cluster.Cluster, path, resource, namespace string) []change {
	t.Helper()
	since, ok := created.Load(namespace)
	if !ok {
		t.Fatalf("%s is not of newNamespace", namespace)
	}
	revisions, err := c.History(
		t.Context(),
		"/registry/"+path+"/"+namespace+"/",
		since.(int64),
	) //nolint:forcetypeassert // newNamespace stores it
	if err != nil {
		t.Fatal(err)
	}
	var changes []change
	for _, r := range revisions {
		name := r.Key[strings.LastIndex(r.Key, "/")+1:]
		changes = append(
			changes,
			change{resource + "/" + namespace + "/" + name, strconv.FormatInt(r.ModRevision, 10), r.Deleted},
		)
	}
	return changes
}

// judge compares what a broker holds with etcd's history: every revision once, and for each object in revision
// order. partitions are the broker's ordered sequences; subjects under prefix count.
func judge(t *testing.T, broker string, truth []change, prefix string, partitions ...[]received) {
	t.Helper()
	want := map[string]change{}
	for _, c := range truth {
		want[c.rv] = c
	}
	last := map[string]int64{}
	seen := map[string]bool{}
	ids := map[string]bool{}
	var wrong []string
	for _, partition := range partitions {
		for _, r := range partition {
			if !r.object() || !strings.HasPrefix(r.subject(), prefix) {
				continue
			}
			c, ok := want[r.resourceVersion()]
			rv, err := strconv.ParseInt(r.resourceVersion(), 10, 64)
			switch {
			case err != nil:
				wrong = append(wrong, fmt.Sprintf("%s has no resourceVersion", r.id()))
			case !ok || c.subject != r.subject():
				wrong = append(wrong, fmt.Sprintf("%s@%d is not in etcd", r.subject(), rv))
			case c.deleted != (r.attributes["operation"] == "deleted"):
				wrong = append(wrong, fmt.Sprintf("%s@%d is %q", r.subject(), rv, r.attributes["operation"]))
			case seen[r.resourceVersion()]:
				wrong = append(wrong, fmt.Sprintf("%s@%d came twice", r.subject(), rv))
			case rv <= last[r.subject()]:
				wrong = append(wrong, fmt.Sprintf("%s@%d came after %d", r.subject(), rv, last[r.subject()]))
			case ids[r.id()]:
				wrong = append(wrong, fmt.Sprintf("id %s came twice", r.id()))
			}
			seen[r.resourceVersion()], ids[r.id()] = true, true
			last[r.subject()] = max(last[r.subject()], rv)
		}
	}
	missing := 0
	for rv, c := range want {
		if !seen[rv] {
			if missing++; missing <= 5 {
				wrong = append(wrong, fmt.Sprintf("%s@%s is missing (deleted: %t)", c.subject, rv, c.deleted))
			}
		}
	}
	if len(wrong) > 0 {
		t.Errorf(
			"%s: %d of %d revisions are missing; %d findings:\n%s",
			broker,
			missing,
			len(want),
			len(wrong),
			strings.Join(wrong[:min(len(wrong), 20)], "\n"),
		)
	}
	t.Logf("%s: %d revisions in etcd, %d arrived", broker, len(want), len(want)-missing)
}

// judgeFinal compares only ends: each object that etcd holds has its last state at the broker as the last event,
// and each deleted one its deletion; for each object revisions never go back. An object whose whole life lies within
// an announced gap can't be known, and is only counted.
func judgeFinal(t *testing.T, broker string, truth []change, prefix string, partitions ...[]received) {
	t.Helper()
	first, final := map[string]change{}, map[string]change{}
	for _, c := range truth {
		if before, ok := final[c.subject]; !ok || before.deleted {
			first[c.subject] = c
		}
		final[c.subject] = c
	}
	last, gaps := lastEvents(t, broker, prefix, partitions)
	missing, unseen := 0, 0
	for subject, c := range final {
		r, ok := last[subject]
		deleted := r.attributes["operation"] == "deleted"
		switch {
		case ok && c.deleted && deleted:
		case ok && !c.deleted && !deleted && r.resourceVersion() == c.rv:
		case !ok && c.deleted && within(t, gaps, first[subject], c):
			unseen++
		default:
			if missing++; missing <= 5 {
				t.Errorf(
					"%s: %s ended at %s (deleted: %t), the broker has %q %s",
					broker,
					subject,
					c.rv,
					c.deleted,
					r.attributes["operation"],
					r.resourceVersion(),
				)
			}
		}
	}
	t.Logf(
		"%s: %d objects in etcd's history, the ends of %d are missing; %d lived and died within an announced gap",
		broker,
		len(final),
		missing,
		unseen,
	)
}

// gap is what a gap event announced.
type gap struct {
	Resource, From, To string
}

func lastEvents(t *testing.T, broker, prefix string, partitions [][]received) (last map[string]received, gaps []gap) {
	t.Helper()
	last = map[string]received{}
	for _, partition := range partitions {
		for _, r := range partition {
			if r.attributes["type"] == "dev.deltabridge.gap" {
				var g gap
				if err := json.Unmarshal(r.data, &g); err != nil {
					t.Fatal(err)
				}
				gaps = append(gaps, g)
			}
			if !r.object() || !strings.HasPrefix(r.subject(), prefix) {
				continue
			}
			before, ok := last[r.subject()]
			left := r.attributes["leftfilter"] == "true" // can have an older state: docs/delivery.md
			if ok && !left && revision(t, r.resourceVersion()) < revision(t, before.resourceVersion()) {
				t.Errorf("%s: %s@%s came after @%s", broker, r.subject(), r.resourceVersion(), before.resourceVersion())
			}
			last[r.subject()] = r
		}
	}
	return last, gaps
}

func within(t *testing.T, gaps []gap, first, last change) bool {
	t.Helper()
	return slices.ContainsFunc(gaps, func(g gap) bool {
		return revision(t, g.From) < revision(t, first.rv) && revision(t, last.rv) <= revision(t, g.To)
	})
}

func revision(t *testing.T, text string) int64 {
	t.Helper()
	rv, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return rv
}
