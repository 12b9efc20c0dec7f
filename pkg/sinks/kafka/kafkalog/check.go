package kafkalog

import (
	"context"
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkacheck"
)

var _ diagnose.Checker = (*Log)(nil)

// Check implements [diagnose.Checker]. It neither creates the topic nor fences a process.
func (l *Log) Check(ctx context.Context) []diagnose.Finding {
	findings, reached := kafkacheck.Reach(ctx, l.client)
	if !reached {
		return findings
	}
	fence := diagnose.Finding{
		Step: sinks.StepAuthorize, Target: "transactional id " + l.txn.ID, Detail: "earlier processes can be fenced",
	}
	err := l.txn.Permitted(ctx)
	if err != nil && !errors.Is(err, kafkago.GroupCoordinatorNotAvailable) { // brokers create its topic at the first use
		fence = diagnose.Failed(fence.Step, fence.Target, l.denied(err))
	}
	return append(append(findings, fence), l.checkTopic(ctx)...)
}

// checkTopic checks the topic or, if it does not exist, whether it can be created.
func (l *Log) checkTopic(ctx context.Context) []diagnose.Finding {
	target := "topic " + l.part.Topic
	failed := func(err error) []diagnose.Finding {
		return []diagnose.Finding{diagnose.Failed(sinks.StepTopic, target, l.denied(err))}
	}
	t, err := l.topic(ctx)
	if create := l.cfg.newTopic(); create != nil && errors.Is(err, kafkago.UnknownTopicOrPartition) {
		if err := l.client.CreateTopic(ctx, l.part.Topic, create, true); err != nil {
			return failed(err)
		}
		const detail = "the topic does not exist; the cluster allows the bridge to create it"
		return []diagnose.Finding{{Step: sinks.StepTopic, Target: target, Detail: detail}}
	}
	if err == nil {
		err = l.permitted(t)
	}
	if err == nil {
		err = l.check(ctx, t)
	}
	if err == nil && !t.Ready() {
		err = fmt.Errorf("%s: %w", &l.part, kafkago.LeaderNotAvailable)
	}
	if err != nil {
		return failed(err)
	}
	return l.checkReplicas(ctx, t, target)
}

// permitted returns an error if the client may not read, write or truncate the topic. The bits are defined by
// AclOperation in the protocol guide. Brokers before 2.3 do not report them.
func (l *Log) permitted(t *wire.Topic) error {
	const read, write, remove, unknown = 1 << 3, 1 << 4, 1 << 6, -1 << 31
	may := t.TopicAuthorizedOperations
	if may != unknown && may != 0 && may&(read|write|remove) != read|write|remove {
		return kafkago.TopicAuthorizationFailed
	}
	return nil
}

// checkReplicas checks how many brokers have the log.
func (l *Log) checkReplicas(ctx context.Context, t *wire.Topic, target string) []diagnose.Finding {
	f := diagnose.Finding{Step: sinks.StepTopic, Target: target}
	settings, err := l.client.TopicSettings(ctx, t.Name)
	replicas, need := len(t.Partitions[0].ReplicaNodes), settings.Number("min.insync.replicas")
	switch {
	case err != nil:
		f.Warn, f.Remedy = true, "give "+l.cfg.SASL.Who()+" the permission DescribeConfigs on the topic"
		f.Detail = fmt.Sprintf("the settings of the topic cannot be read and are not checked: %v", err)
	case int64(replicas) < need:
		f.Err = fmt.Errorf("it has %d replicas, but min.insync.replicas is %d: nothing can be written", replicas, need)
		f.Remedy = "add replicas, or reduce min.insync.replicas of the topic"
	case replicas == 1 || need == 1:
		f.Warn, f.Remedy = true, "use 3 replicas, and set min.insync.replicas of the topic to 2"
		f.Detail = fmt.Sprintf("it has %d replicas, and min.insync.replicas is %d: commits can be lost with one broker",
			replicas, need)
	case settings["unclean.leader.election.enable"] == "true":
		f.Warn, f.Remedy = true, "set unclean.leader.election.enable of the topic to false"
		f.Detail = "unclean.leader.election.enable is true: commits can be lost with a broker"
	default:
		f.Detail = fmt.Sprintf("%d replicas, min.insync.replicas %d", replicas, need)
	}
	return []diagnose.Finding{f}
}
