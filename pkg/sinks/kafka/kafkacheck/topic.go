package kafkacheck

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

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
	// maxChecked is the maximum number of topics that are checked for one template.
	maxChecked = 100
)

// topics checks the topic, or all existing topics that match the template.
func (c *Check) topics(ctx context.Context) (findings []diagnose.Finding) {
	name := c.Topic.String()
	names := []string{name}
	if c.Topic.Wildcard() != name {
		var err error
		if names, err = c.Client.TopicsLike(ctx, c.Topic); err != nil {
			return []diagnose.Finding{diagnose.Failed(sinks.StepTopic, name, err)}
		}
		f := diagnose.Finding{Step: sinks.StepTopic, Target: name}
		f.Detail = fmt.Sprintf("%d topics are there that it can make", len(names))
		if len(names) > maxChecked {
			names = names[:maxChecked]
			f.Detail += fmt.Sprintf("; the first %d are looked at", maxChecked)
		}
		if c.Create != nil {
			f.Detail += "; others are created when the first event goes there"
		} else {
			f.Warn = len(names) == 0
			f.Detail += "; events for others wait until they are there"
			f.Remedy = "create a topic for each value of the template, or set kafka.createTopics"
		}
		findings = append(findings, f)
	}
	if len(names) == 0 {
		return findings
	}
	msg, err := c.Client.Ask(ctx, &metadata.Request{TopicNames: names, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return append(findings, diagnose.Failed(sinks.StepTopic, name, err))
	}
	for _, t := range msg.(*metadata.Response).Topics {
		one := &topic{Check: c, target: "topic " + t.Name, ResponseTopic: t}
		one.run(ctx)
		findings = append(findings, one.findings...)
	}
	return findings
}

// topic is the check of one topic.
type topic struct {
	*Check
	metadata.ResponseTopic
	target   string
	settings map[string]string
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
	switch code := kafkago.Error(t.ErrorCode); code {
	case 0:
	case kafkago.UnknownTopicOrPartition:
		t.checkCreation(ctx)
		return
	default:
		t.fail(t.Client.CodeError(t.target, code, ""))
		return
	}
	// These bits are defined by AclOperation in the protocol guide. Brokers before 2.3 do not report them.
	const write, unknown = 1 << 4, -1 << 31
	switch may := t.TopicAuthorizedOperations; {
	case may == unknown || may == 0:
	case may&write == 0:
		t.fail(t.Client.CodeError(t.target, kafkago.TopicAuthorizationFailed, ""))
		return
	default:
		t.pass(sinks.StepAuthorize, "%s may write", t.Config.SASL.Who())
	}
	var err error
	if t.settings, err = t.Client.TopicSettings(ctx, t.Name); err != nil {
		t.warn(fmt.Sprintf("give %s the permission DescribeConfigs on the topic, to have them checked", t.Config.SASL.Who()),
			"its settings can't be read: %v", err)
		return
	}
	t.describe()
	t.checkReplication()
	t.checkSettings()
}

// checkCreation asks the cluster whether it would create the topic, without creating it.
func (t *topic) checkCreation(ctx context.Context) {
	if t.Create == nil {
		t.fail(wire.NoTopic(t.Name))
		return
	}
	if err := t.Client.CreateTopics(ctx, []string{t.Name}, t.Create, true)[t.Name]; err != nil {
		t.fail(err)
		return
	}
	t.pass(sinks.StepTopic, "it does not exist; the cluster would let the bridge create it")
}

// number returns a setting as an integer, or -1 if it is not an integer.
func (t *topic) number(setting string) int64 {
	n, err := strconv.ParseInt(t.settings[setting], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (t *topic) deletes() bool { return strings.Contains(t.settings["cleanup.policy"], "delete") }

func (t *topic) describe() {
	replicas, _, _ := t.replication()
	names := []string{"min.insync.replicas", "max.message.bytes", "cleanup.policy"}
	if t.deletes() {
		names = append(names, "retention.ms", "retention.bytes")
	}
	for i, name := range names {
		names[i] = name + " " + t.settings[name]
	}
	t.pass(sinks.StepTopic, "%d partitions, %d replicas, %s", len(t.Partitions), replicas, strings.Join(names, ", "))
}

// checkReplication compares the topic's replicas with the guarantees of acks=all.
func (t *topic) checkReplication() {
	fail := func(remedy, format string, args ...any) {
		t.fail(&sinks.ConnectError{
			Step: sinks.StepTopic, Key: "kafka.topic", Remedy: remedy, Err: fmt.Errorf(format, args...),
		})
	}
	replicas, inSync, leaderless := t.replication()
	need := t.number("min.insync.replicas")
	switch {
	case leaderless > 0:
		fail("bring the brokers back that hold them", "%d of its %d partitions have no leader and take no events",
			leaderless, len(t.Partitions))
	case replicas < need:
		fail("set its min.insync.replicas to less than its replicas, or add replicas",
			"acks=all can't be had: min.insync.replicas is %d, and it has %d replicas", need, replicas)
	case inSync < need:
		fail("bring the brokers back that hold the others",
			"acks=all can't be had at present: min.insync.replicas is %d, and %d of %d replicas are in sync",
			need, inSync, replicas)
	}
	switch {
	case replicas == 1:
		t.warn("give it 3 replicas and min.insync.replicas 2",
			"it has one replica: what a lost broker held is lost, acknowledged or not")
	case need == 1:
		t.warn("set its min.insync.replicas to 2",
			"min.insync.replicas is 1: an acknowledgement can rest on a single broker, with which it is lost")
	case replicas == need:
		t.warn("set its min.insync.replicas to one less, or add a replica",
			"min.insync.replicas is as many as it has replicas, %d: events wait whenever one broker is away", replicas)
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
	if limit := t.number("max.message.bytes"); limit >= 0 && limit < largestObject {
		t.warn("raise its max.message.bytes",
			"it takes messages of %d bytes at most, and an object can have %d: larger ones (compressed) become gap events",
			limit, largestObject)
	}
	policy := t.settings["cleanup.policy"]
	switch compacts := strings.Contains(policy, "compact"); {
	case compacts && !t.Tombstones:
		t.warn("set kafka.tombstones: true",
			"it is compacted: the last event of each object stays forever, also that of its deletion")
	case !compacts && t.Tombstones:
		t.warn("set its cleanup.policy to compact, or leave kafka.tombstones out",
			"kafka.tombstones is set, and its cleanup.policy is %s: the tombstones have no effect", policy)
	}
	keep := t.number("retention.ms")
	if age := time.Duration(keep) * time.Millisecond; t.deletes() && keep >= 0 && age < shortRetention {
		t.warn("raise its retention.ms", "it keeps events for %v: consumers that are away for longer miss them", age)
	}
}
