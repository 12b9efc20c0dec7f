package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func change(partition, version int) Event {
	return Event{Partition: partition, Attributes: map[string]string{
		"type": "dev.deltabridge.object.updated", "source": "/clusters/c", "subject": fmt.Sprintf("pods/a/p%d", version),
		"resourceversion": strconv.Itoa(version),
	}}
}

func progress(partition, version int) Event {
	return Event{Partition: partition, Attributes: map[string]string{
		"type": "dev.deltabridge.progress", "source": "/clusters/c", "subject": "pods",
		"resourceversion": strconv.Itoa(version),
	}}
}

func gap(data string) Event {
	return Event{Data: []byte(data), Attributes: map[string]string{
		"type": "dev.deltabridge.gap", "source": "/clusters/c", "subject": "pods",
	}}
}

// added adds events one after another, and returns what is to be processed as "resourceVersion" or "gap".
func added(m *Merger, events ...Event) (all []string) {
	for _, e := range events {
		for _, out := range m.Add(e) {
			text := out.Attributes["resourceversion"]
			if text == "" {
				text = "gap"
			}
			all = append(all, text)
		}
	}
	return all
}

func TestMerger(t *testing.T) {
	m := NewMerger(0, 1)
	other := change(0, 1)
	other.Attributes["subject"] = "nodes//n1"
	for _, step := range []struct {
		name   string
		events []Event
		want   []string
	}{
		{"nothing is known", []Event{change(0, 5), change(1, 4), other}, nil},
		{"one partition is complete", []Event{progress(0, 9)}, nil},
		{"both are, up to the lower one", []Event{change(1, 6), progress(1, 5), change(0, 10)}, []string{"4", "5"}},
		{"the rest", []Event{progress(1, 9)}, []string{"6"}},
		{"a repetition", []Event{change(0, 5)}, []string{"5"}},
		{"lower progress after a restart", []Event{progress(0, 7), progress(1, 10)}, nil},
		{"and its next", []Event{progress(0, 10)}, []string{"10"}},
		{"a gap", []Event{change(0, 12), gap(`{"from":"10","to":"11"}`)}, []string{"gap"}},
		{"etcd was restored", []Event{gap(`{"from":"12","to":"3"}`)}, []string{"12", "gap"}},
		{"it begins again", []Event{change(0, 4), progress(0, 4), progress(1, 4)}, []string{"4"}},
	} {
		if diff := cmp.Diff(step.want, added(m, step.events...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestCommittable(t *testing.T) {
	m := NewMerger(0, 1)
	for n, version := range []int{7, 5, 9} {
		e := change(0, version)
		e.Offset = int64(20 + n)
		m.Add(e)
	}
	if got := m.Committable(0, 23); got != 20 {
		t.Errorf("offset %d", got)
	}
	added(m, progress(0, 8), progress(1, 8))
	if got := m.Committable(0, 24); got != 22 {
		t.Errorf("after progress: offset %d", got)
	}
	if got := m.Committable(1, 3); got != 3 {
		t.Errorf("another partition: offset %d", got)
	}
}

// Whatever the order in which partitions are read, the changes come in their order, each of them once.
func TestMergerGivesOneOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		partitions := make([][]Event, 4)
		var want []string
		for version := 1; version <= 100; version++ {
			p := random.IntN(len(partitions))
			partitions[p] = append(partitions[p], change(p, version))
			want = append(want, strconv.Itoa(version))
			if version == 100 || random.IntN(10) == 0 {
				for p := range partitions {
					partitions[p] = append(partitions[p], progress(p, version))
				}
			}
		}
		m := NewMerger(0, 1, 2, 3)
		var got []string
		for slices.ContainsFunc(partitions, func(rest []Event) bool { return len(rest) > 0 }) {
			p := random.IntN(len(partitions))
			n := random.IntN(len(partitions[p]) + 1)
			got = append(got, added(m, partitions[p][:n]...)...)
			partitions[p] = partitions[p][n:]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}
