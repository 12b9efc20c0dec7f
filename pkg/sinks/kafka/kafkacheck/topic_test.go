package kafkacheck

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// TestReplication: what a single test broker can't show.
func TestReplication(t *testing.T) {
	three := []int32{1, 2, 3}
	for _, c := range []struct {
		name       string
		partitions []metadata.ResponsePartition
		insync     string
		want       []string
	}{
		{"as it should be", []metadata.ResponsePartition{{ReplicaNodes: three, IsrNodes: three}}, "2", nil},
		{
			"no leader",
			[]metadata.ResponsePartition{{ReplicaNodes: three, IsrNodes: three}, {LeaderID: -1, ReplicaNodes: three, IsrNodes: three}},
			"2",
			[]string{"FAIL 1 of 2 partitions have no leader and accept no events, and Kafka 4 can lose the markers of their fences (KAFKA-20734)"},
		},
		{
			"replicas out of sync",
			[]metadata.ResponsePartition{{ReplicaNodes: three, IsrNodes: three}, {ReplicaNodes: three, IsrNodes: three[:1]}},
			"2",
			[]string{"FAIL acks=all is impossible now"},
		},
		{
			"one acknowledgement is enough",
			[]metadata.ResponsePartition{{ReplicaNodes: three, IsrNodes: three}},
			"1",
			[]string{"warn min.insync.replicas is 1"},
		},
		{
			"no broker may be away",
			[]metadata.ResponsePartition{{ReplicaNodes: three, IsrNodes: three}},
			"3",
			[]string{"warn min.insync.replicas is 3, and the topic has 3 replicas"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := &topic{Check: &Check{}, settings: map[string]string{"min.insync.replicas": c.insync}}
			one.Partitions = c.partitions
			one.checkReplication()
			wantFindings(t, one.findings, c.want)
		})
	}
}

// wantFindings compares the beginnings of findings.
func wantFindings(t *testing.T, findings []diagnose.Finding, want []string) {
	t.Helper()
	var got []string
	for i, f := range findings {
		line := "warn " + f.Detail
		if f.Err != nil {
			line = "FAIL " + strings.TrimPrefix(f.Err.Error(), "topic: ")
		}
		if i < len(want) && strings.HasPrefix(line, want[i]) {
			line = want[i]
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStateProblem: the topic itself counts, and the setting with which it is created only as long as there is none.
func TestStateProblem(t *testing.T) {
	one, three := []int32{1}, []int32{1, 2, 3}
	const setting, has = "transaction.state.log.replication.factor of the brokers is 1:", "the topic __transaction_state has one replica:"
	for _, c := range []struct {
		name       string
		partitions []metadata.ResponsePartition
		setting    string
		want       string
	}{
		{"three replicas", []metadata.ResponsePartition{{ReplicaNodes: three}}, "3", ""},
		{"one replica", []metadata.ResponsePartition{{ReplicaNodes: one}}, "1", setting},
		{"created when there was one broker", []metadata.ResponsePartition{{ReplicaNodes: three}, {ReplicaNodes: one}}, "3", has},
		{"increased since it was created", []metadata.ResponsePartition{{ReplicaNodes: three}}, "1", ""},
		{"settings that can't be read", []metadata.ResponsePartition{{ReplicaNodes: one}}, "", has},
		{"not created yet", nil, "1", setting},
		{"not created yet, three replicas", nil, "3", ""},
		{"nothing is known", nil, "", ""},
		{
			"no leader",
			[]metadata.ResponsePartition{{ReplicaNodes: three}, {LeaderID: -1, ReplicaNodes: three}},
			"3",
			"1 of 2 partitions of the topic __transaction_state have no leader:",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := &topic{}
			one.Partitions = c.partitions
			detail, remedy := stateProblem(one, map[string]string{"transaction.state.log.replication.factor": c.setting})
			if !strings.HasPrefix(detail, c.want) || (detail == "") != (c.want == "") || (remedy == "") != (detail == "") {
				t.Errorf("%q -> %q, want %q", detail, remedy, c.want)
			}
		})
	}
}
