package kafkacheck

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol/metadata"
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
			[]string{"FAIL 1 of 2 partitions have no leader"},
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
			one := &topic{settings: map[string]string{"min.insync.replicas": c.insync}}
			one.Partitions = c.partitions
			one.checkReplication()
			var got []string
			for i, f := range one.findings {
				line := "warn " + f.Detail
				if f.Err != nil {
					line = "FAIL " + strings.TrimPrefix(f.Err.Error(), "topic: ")
				}
				if i < len(c.want) && strings.HasPrefix(line, c.want[i]) {
					line = c.want[i]
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
