package node

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/control"
)

// reloadReplicas changes a filter of two replicas three times. Each time, the leader is replaced as soon as one replica
// has the changed file.
func (n *node) reloadReplicas(t *testing.T) {
	several := documented(t, "## Several replicas")
	write := func(filter string) {
		several.write(t, func(values map[string]any) {
			config := values["config"].(map[string]any)
			config["sinks"] = append(config["sinks"].([]any), map[string]any{
				"name": "some", "filters": []any{map[string]any{"when": filter}},
				"nats": map[string]any{
					"url": "nats://nats.nats:4222", "subject": "some.{resource}.{namespace}.{name}",
					"stream": map[string]any{"name": someStream, "create": true, "subjects": []any{"some.>"}},
				},
			})
		})
	}
	write(everything)
	n.installAnew(t, several.sh[0]+install+" && kubectl -n deltabridge rollout status deployment/deltabridge --timeout=2m")
	n.keep(t)
	filters := []string{everything}
	for _, round := range []struct {
		name, filter string
		pause        time.Duration // of delivery, at most
		replace      func(t *testing.T, pod string)
	}{
		{"LeaderDeleted", ending, 10 * time.Second, func(t *testing.T, pod string) {
			shell(t, dir, "kubectl -n deltabridge delete pod "+pod)
		}},
		{"LeaderKilled", everything, 20 * time.Second, killBridge},
		{"LeaderForceDeleted", ending, 20 * time.Second, func(t *testing.T, pod string) {
			shell(t, dir, "kubectl -n deltabridge delete pod --grace-period=0 --force "+pod)
		}},
	} {
		filters = append(filters, round.filter)
		if !t.Run(round.name, func(t *testing.T) {
			paused := n.underLoad(t, "configmaps", func() {
				leader, _ := n.awaitReplicas(t)
				before := n.status(t, leader).Configuration.Hash
				write(round.filter)
				shell(t, now(), upgrade)
				n.awaitFirst(t, before)
				leader, _ = n.awaitReplicas(t)
				round.replace(t, leader.Name)
				n.awaitReplicas(t)
				n.awaitAll(t, before)
				pause(t, 3*time.Second) // the last filter decides about some changes
			})
			if paused > round.pause {
				t.Errorf("delivery paused for %s", paused)
			}
			n.judgeFilters(t, filters)
		}) {
			return
		}
	}
	leader, standby := n.awaitReplicas(t)
	n.expectDelivered(t, leader.Name, standby.Name)
}

// configurations returns the configuration of each replica, by Pod.
func (n *node) configurations(t *testing.T) (map[string]control.Configuration, error) {
	t.Helper()
	leader, pods := n.pods(t)
	if leader != nil {
		pods = append(pods, leader)
	}
	all := map[string]control.Configuration{}
	for _, pod := range pods {
		s, err := tryStatus(t, pod)
		if err != nil {
			return nil, err
		}
		all[pod.Name] = s.Configuration
	}
	return all, nil
}

// awaitFirst waits until a replica has another file than the one with the hash before.
func (n *node) awaitFirst(t *testing.T, before string) {
	t.Helper()
	start := time.Now()
	within(t, 3*time.Minute, func() error {
		pause(t, 100*time.Millisecond)
		all, err := n.configurations(t)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.Hash != before || c.Waits != "" {
				t.Logf("%5.1f s  until a replica has the changed file: %+v", time.Since(start).Seconds(), all)
				return nil
			}
		}
		return errors.New("no replica has the changed file")
	})
}

// awaitAll waits until both replicas use the same configuration, and another one than that with the hash before.
func (n *node) awaitAll(t *testing.T, before string) {
	t.Helper()
	start := time.Now()
	within(t, 4*time.Minute, func() error {
		pause(t, 100*time.Millisecond)
		all, err := n.configurations(t)
		if err != nil {
			return err
		}
		var hashes []string
		for _, c := range all {
			if c.Hash != before && c.Waits == "" && c.Error == nil {
				hashes = append(hashes, c.Hash)
			}
		}
		if len(all) != 2 || len(hashes) != 2 || hashes[0] != hashes[1] {
			return fmt.Errorf("not in use by all: %+v", all)
		}
		return nil
	})
	t.Logf("%5.1f s  until all replicas use the changed configuration", time.Since(start).Seconds())
}

// alwaysPasses reports whether an object passes all filters.
func alwaysPasses(subject string) bool { return strings.HasSuffix(subject, "1") }

// judgeFilters compares the stream of the sink some with the filters that it has had. No filter may flip: each object
// that stays has entered and left as often as the filters say. What passes all filters is compared with etcd, and the
// rest shows which filter is in use.
func (n *node) judgeFilters(t *testing.T, filters []string) {
	t.Helper()
	want, expected := n.wanted(t, n.since), map[string]string{}
	maps.DeleteFunc(want, func(_ int64, e event) bool { return !alwaysPasses(e.subject) })
	for i := range n.kept {
		subject := "configmaps/" + loadNamespace + "/" + keptName(i)
		expected[subject] = " added"
		for _, filter := range filters[1:] {
			if !alwaysPasses(subject) {
				expected[subject] += map[string]string{ending: " left", everything: " added"}[filter]
			}
		}
	}
	within(t, time.Minute, func() error {
		pause(t, 100*time.Millisecond)
		passing, history, others := filtered(n.readFrom(t, someStream, 0))
		missing, wrong := compare(want, passing, n.since)
		if len(wrong) > 0 {
			t.Fatalf("%d events are wrong:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), 20)], "\n"))
		}
		diff := cmp.Diff(expected, history)
		if diff != "" || missing > 0 || (others > 0) != (filters[len(filters)-1] == everything) {
			return fmt.Errorf("%d of %d commits are missing, %d events that only one filter lets through, "+
				"objects that enter or leave (-want +got):\n%s", missing, len(want), others, diff)
		}
		t.Logf("%d commits that pass all filters: none missing, none repeated; no filter flipped", len(want))
		return nil
	})
}

// filtered returns the events of a stream about objects that pass all filters; for each object that stays, how it has
// entered and left; and how many other events there are since the last leave.
func filtered(events []received) (passing []received, history map[string]string, others int) {
	history = map[string]string{}
	for _, e := range events {
		if !strings.Contains(e.subject, "/"+loadNamespace+"/") {
			continue
		}
		what := e.operation
		if e.left {
			what = "left"
		}
		if strings.Contains(e.subject, "/kept-") && what != "updated" {
			history[e.subject] += " " + what
		}
		switch {
		case alwaysPasses(e.subject):
			passing = append(passing, e)
		case e.left:
			others = 0
		case what != "deleted": // an object that the sink knows can be deleted while its filter changes
			others++
		}
	}
	return passing, history, others
}
