package kafkacheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	// largestObject is the largest request that etcd accepts by default, in bytes. It approximates the size of the largest
	// object.
	largestObject = 3 << 19
	// shortRetention is shorter than an ordinary outage of a consumer.
	shortRetention = time.Hour

	lostWithABroker = "if a broker is lost, its acknowledged events are lost too, and Kafka 4 can lose the marker of a " +
		"fence while a partition has no leader (KAFKA-20734)"
	uncleanElections = "unclean.leader.election.enable is true: acknowledged events, and fences, can be lost with a broker"
)

// topics checks the topic, or all existing topics that match the template, except others.
func (c *Check) topics(ctx context.Context, others []wire.Topic) (findings []diagnose.Finding) {
	name := c.Topic.String()
	found, err := c.Client.TopicsLike(ctx, name)
	if err != nil {
		return []diagnose.Finding{diagnose.Failed(sinks.StepTopic, name, err)}
	}
	found = slices.DeleteFunc(found, func(t wire.Topic) bool {
		return slices.ContainsFunc(others, func(o wire.Topic) bool { return o.Name == t.Name })
	})
	if c.Topic.Wildcard() != name {
		f := diagnose.Finding{Step: sinks.StepTopic, Target: name}
		f.Detail = fmt.Sprintf("%d existing topics match the template", len(found))
		if c.Create != nil {
			f.Detail += "; other topics are created when they are needed"
		} else {
			f.Warn = len(found) == 0
			f.Detail += "; events for other topics wait until these topics exist"
			f.Remedy = "create a topic for each value of the template, or set kafka.createTopics"
		}
		findings = append(findings, f)
	}
	for _, t := range found {
		one := &topic{Check: c, target: "topic " + t.Name, Topic: t}
		one.run(ctx)
		findings = append(findings, one.findings...)
	}
	return findings
}

// topic is the check of one topic.
type topic struct {
	*Check
	wire.Topic
	target   string
	settings wire.Settings
	findings []diagnose.Finding
}

func (t *topic) pass(step, format string, args ...any) {
	t.findings = append(t.findings, diagnose.Finding{Step: step, Target: t.target, Detail: fmt.Sprintf(format, args...)})
}

func (t *topic) warn(remedy, format string, args ...any) {
	t.pass(sinks.StepTopic, format, args...)
	last := &t.findings[len(t.findings)-1]
	last.Warn, last.Remedy = true, remedy
}

func (t *topic) fail(err error) {
	t.findings = append(t.findings, diagnose.Failed(sinks.StepTopic, t.target, err))
}

func (t *topic) run(ctx context.Context) {
	t.checkSchema(ctx)
	if errors.Is(t.Err, kafkago.UnknownTopicOrPartition) {
		t.checkCreation(ctx)
		return
	} else if t.Err != nil {
		t.fail(t.Err)
		return
	}
	// These bits are defined by AclOperation in the protocol guide. Brokers before 2.3 do not report them.
	const read, write, unknown = 1 << 3, 1 << 4, -1 << 31
	switch may := t.TopicAuthorizedOperations; {
	case may == unknown || may == 0:
	case may&write == 0:
		t.fail(t.Client.CodeError(t.target, kafkago.TopicAuthorizationFailed, ""))
		return
	default:
		t.pass(sinks.StepAuthorize, "%s may write", t.Client.Config.SASL.Who())
		if may&read == 0 && !t.Letters {
			t.warn(fmt.Sprintf("give %s the permission Read on the topic", t.Client.Config.SASL.Who()),
				"%s may not read: after a crash, events are written twice", t.Client.Config.SASL.Who())
		}
	}
	var err error
	if t.settings, err = t.Client.TopicSettings(ctx, t.Name); err != nil {
		t.warn(fmt.Sprintf("give %s the permission DescribeConfigs on the topic", t.Client.Config.SASL.Who()),
			"the settings of the topic cannot be read and are not checked: %v", err)
		return
	}
	t.describe()
	t.checkReplication()
	t.checkSettings()
}

func (t *topic) describe() {
	replicas, _, _ := t.replication()
	about := []string{fmt.Sprintf("%d partitions, %d replicas", len(t.Partitions), replicas)}
	for _, name := range []string{
		"min.insync.replicas", "max.message.bytes", "cleanup.policy", "retention.ms", "retention.bytes",
	} {
		about = append(about, name+" "+t.settings[name])
	}
	t.pass(sinks.StepTopic, "%s", strings.Join(about, ", "))
}

// checkCreation asks the cluster whether it would create the topic, without creating it.
func (t *topic) checkCreation(ctx context.Context) {
	if t.Create == nil {
		t.fail(t.Err)
		return
	}
	if err := t.Client.CreateTopic(ctx, t.Name, t.Create, true); err != nil {
		t.fail(err)
		return
	}
	t.pass(sinks.StepTopic, "the topic does not exist; the cluster allows the bridge to create it")
}

// checkReplication compares the topic's replicas with the guarantees of acks=all.
func (t *topic) checkReplication() {
	replicas, inSync, leaderless := t.replication()
	need := t.settings.Number("min.insync.replicas")
	e := &sinks.ConnectError{Step: sinks.StepTopic, Key: "kafka.topic"}
	if t.control {
		e.Key = "controlEvents.topic"
	}
	switch {
	case leaderless > 0:
		e.Err = fmt.Errorf("%d of %d partitions have no leader and accept no events, and Kafka 4 can lose the markers of "+
			"their fences (KAFKA-20734)", leaderless, len(t.Partitions))
		e.Remedy = "start the brokers that have replicas of these partitions"
	case replicas < need:
		e.Err = fmt.Errorf("acks=all is impossible: min.insync.replicas is %d, but the topic has %d replicas", need, replicas)
		e.Remedy = "reduce min.insync.replicas of the topic to less than its number of replicas, or add replicas"
	case inSync < need:
		e.Err = fmt.Errorf("acks=all is impossible now: min.insync.replicas is %d, but only %d of %d replicas are in sync",
			need, inSync, replicas)
		e.Remedy = "start the brokers that have the other replicas"
	}
	if e.Err != nil {
		t.fail(e)
	}
	switch {
	case replicas == 1:
		t.warn("increase the number of replicas to 3, and set min.insync.replicas to 2",
			"the topic has one replica: %s", lostWithABroker)
	case need == 1:
		t.warn("set min.insync.replicas of the topic to 2",
			"min.insync.replicas is 1: an acknowledged event can be on a single broker, and is lost with this broker")
	case replicas == need:
		t.warn("reduce min.insync.replicas of the topic by one, or add a replica",
			"min.insync.replicas is %d, and the topic has %d replicas: events wait while any of these brokers is down",
			need, replicas)
	}
}

// replication returns the smallest numbers of replicas and in-sync replicas of any partition, and the number of
// partitions without a leader.
func (t *topic) replication() (replicas, inSync int64, leaderless int) {
	for i, p := range t.Partitions {
		all, synced := int64(len(p.ReplicaNodes)), int64(len(p.IsrNodes))
		if i == 0 {
			replicas, inSync = all, synced
		}
		replicas, inSync = min(replicas, all), min(inSync, synced)
		if p.LeaderID < 0 {
			leaderless++
		}
	}
	return replicas, inSync, leaderless
}

// checkSettings compares the topic's settings with the expectations of consumers.
func (t *topic) checkSettings() {
	if limit := t.settings.Number("max.message.bytes"); limit >= 0 && limit < largestObject && !t.control {
		t.warn("increase max.message.bytes of the topic",
			"the topic accepts at most %d bytes (compressed), but objects can have up to %d bytes: "+
				"see the sink's oversize setting for larger events",
			limit, largestObject)
	}
	if t.settings["unclean.leader.election.enable"] == "true" {
		t.warn("set unclean.leader.election.enable of the topic to false",
			"%s", uncleanElections)
	}
	policy := t.settings["cleanup.policy"]
	switch compacts := strings.Contains(policy, "compact"); {
	case compacts && t.control:
		t.warn("set cleanup.policy of the topic to delete",
			"the topic is compacted: it keeps only the last control event of each type and resource")
	case compacts && !t.Tombstones:
		t.warn("set kafka.tombstones: true",
			"the topic is compacted: the last event of each object stays forever, even if it is a deletion")
	case !compacts && t.Tombstones:
		t.warn("set cleanup.policy of the topic to compact, or remove kafka.tombstones",
			"kafka.tombstones is set, but cleanup.policy of the topic is %s: tombstones have no effect", policy)
	}
	keep := time.Duration(t.settings.Number("retention.ms")) * time.Millisecond
	if strings.Contains(policy, "delete") && keep >= 0 && keep < shortRetention {
		t.warn("increase retention.ms of the topic",
			"the topic keeps events for %v: a consumer that is down for longer misses events", keep)
	}
}
