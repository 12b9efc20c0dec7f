package kafka

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const (
	// largestObject is the largest request that etcd takes by default, and so about the largest object, in bytes.
	largestObject = 3 << 19
	// shortRetention is less than an ordinary outage of a reader.
	shortRetention = time.Hour
	// maxChecked bounds how many topics of a template are looked at.
	maxChecked = 100
)

// checkTopics looks at the topic, or at those that are there and that the template can make.
func (s *Sink) checkTopics(ctx context.Context, c *cluster) []diagnose.Finding {
	name := s.template.String()
	fixed := s.template.Wildcard() == name
	names := []string{name}
	if !fixed {
		var err error
		if names, err = s.existing(ctx, c); err != nil {
			return []diagnose.Finding{diagnose.Failed(sinks.StepTopic, name, err)}
		}
	}
	var findings []diagnose.Finding
	if !fixed {
		f := diagnose.Finding{Step: sinks.StepTopic, Target: name, Detail: fmt.Sprintf("%d topics are there that it can make", len(names))}
		if len(names) > maxChecked {
			names = names[:maxChecked]
			f.Detail += fmt.Sprintf("; the first %d are looked at", maxChecked)
		}
		switch {
		case s.cfg.CreateTopics != nil:
			f.Detail += "; others are created when the first event goes there"
		default:
			f.Warn = len(names) == 0
			f.Detail += "; events for others wait until they are there"
			f.Remedy = "create a topic for each value of the template, or set kafka.createTopics"
		}
		findings = append(findings, f)
	}
	if len(names) == 0 {
		return findings
	}
	msg, err := c.ask(ctx, &metadata.Request{TopicNames: names, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return append(findings, diagnose.Failed(sinks.StepTopic, name, err))
	}
	for _, t := range msg.(*metadata.Response).Topics {
		findings = append(findings, s.checkTopic(ctx, c, &t)...)
	}
	return findings
}

// existing are the topics that the client may see and that the template can make.
func (s *Sink) existing(ctx context.Context, c *cluster) ([]string, error) {
	msg, err := c.ask(ctx, &metadata.Request{}) // all
	if err != nil {
		return nil, err
	}
	pattern, err := regexp.Compile("^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(s.template.String()), `[A-Za-z0-9._-]+`) + "$")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range msg.(*metadata.Response).Topics {
		if !t.IsInternal && pattern.MatchString(t.Name) {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (s *Sink) checkTopic(ctx context.Context, c *cluster, t *metadata.ResponseTopic) []diagnose.Finding {
	target := "topic " + t.Name
	switch code := kafkago.Error(t.ErrorCode); code {
	case 0:
	case kafkago.UnknownTopicOrPartition:
		return []diagnose.Finding{s.checkCreation(ctx, c, t.Name)}
	default:
		return []diagnose.Finding{diagnose.Failed(sinks.StepTopic, target, s.codeError(target, code, ""))}
	}
	var findings []diagnose.Finding
	// Bits of the protocol guide's AclOperation. Brokers before 2.3 do not tell.
	const write, untold = 1 << 4, -1 << 31
	switch may := t.TopicAuthorizedOperations; {
	case may == untold || may == 0:
	case may&write == 0:
		return []diagnose.Finding{diagnose.Failed(sinks.StepAuthorize, target, s.codeError(target, kafkago.TopicAuthorizationFailed, ""))}
	default:
		findings = append(findings, diagnose.Finding{Step: sinks.StepAuthorize, Target: target, Detail: s.cfg.SASL.who() + " may write"})
	}
	settings, err := c.topicSettings(ctx, t.Name)
	if err != nil {
		return append(findings, diagnose.Finding{
			Step: sinks.StepTopic, Target: target, Warn: true, Detail: "its settings can't be read: " + err.Error(),
			Remedy: fmt.Sprintf("give %s the permission DescribeConfigs on the topic, to have them checked", s.cfg.SASL.who()),
		})
	}
	return append(findings, s.judgeTopic(t, settings)...)
}

// checkCreation asks the cluster whether it would create the topic, without creating it.
func (s *Sink) checkCreation(ctx context.Context, c *cluster, name string) diagnose.Finding {
	target := "topic " + name
	if s.cfg.CreateTopics == nil {
		return diagnose.Failed(sinks.StepTopic, target, noTopic(name))
	}
	req := c.createRequest([]string{name}, s.cfg.CreateTopics)
	req.ValidateOnly = true
	msg, err := c.askController(ctx, req)
	if err != nil {
		return diagnose.Failed(sinks.StepTopic, target, err)
	}
	for _, t := range msg.(*createtopics.Response).Topics {
		if code := kafkago.Error(t.ErrorCode); code != 0 && code != kafkago.TopicAlreadyExists {
			return diagnose.Failed(sinks.StepTopic, target, c.notCreated(name, code, t.ErrorMessage))
		}
	}
	return diagnose.Finding{Step: sinks.StepTopic, Target: target, Detail: "it is not there; the cluster would let the bridge create it"}
}

// topicSettings reads what of a topic's configuration matters here.
func (c *cluster) topicSettings(ctx context.Context, name string) (map[string]string, error) {
	const topicResource = 2
	msg, err := c.ask(ctx, &describeconfigs.Request{Resources: []describeconfigs.RequestResource{{
		ResourceType: topicResource, ResourceName: name,
		ConfigNames: []string{"min.insync.replicas", "max.message.bytes", "cleanup.policy", "retention.ms", "retention.bytes"},
	}}})
	if err != nil {
		return nil, err
	}
	settings := make(map[string]string)
	for _, r := range msg.(*describeconfigs.Response).Resources {
		if code := kafkago.Error(r.ErrorCode); code != 0 {
			return nil, errors.New(code.Title())
		}
		for _, entry := range r.ConfigEntries {
			settings[entry.ConfigName] = entry.ConfigValue
		}
	}
	return settings, nil
}

// judgeTopic holds the topic against what the bridge promises.
func (s *Sink) judgeTopic(t *metadata.ResponseTopic, settings map[string]string) []diagnose.Finding {
	target := "topic " + t.Name
	number := func(name string) int64 {
		n, err := strconv.ParseInt(settings[name], 10, 64)
		if err != nil {
			return -1
		}
		return n
	}
	var findings []diagnose.Finding
	fail := func(remedy, format string, args ...any) {
		findings = append(findings, diagnose.Failed(sinks.StepTopic, target, &sinks.ConnectError{
			Step: sinks.StepTopic, Key: "kafka.topic", Remedy: remedy, Err: fmt.Errorf(format, args...),
		}))
	}
	warn := func(remedy, format string, args ...any) {
		findings = append(findings, diagnose.Finding{Step: sinks.StepTopic, Target: target, Warn: true, Remedy: remedy, Detail: fmt.Sprintf(format, args...)})
	}

	replicas, inSync, leaderless := replication(t)
	need := number("min.insync.replicas")
	switch {
	case leaderless > 0:
		fail("bring the brokers back that hold them", "%d of its %d partitions have no leader and take no events", leaderless, len(t.Partitions))
	case int64(replicas) < need:
		fail("set its min.insync.replicas to less than its replicas, or add replicas", "acks=all can't be had: min.insync.replicas is %d, and it has %d replicas", need, replicas)
	case int64(inSync) < need:
		fail("bring the brokers back that hold the others", "acks=all can't be had at present: min.insync.replicas is %d, and %d of %d replicas are in sync", need, inSync, replicas)
	}
	switch {
	case replicas == 1:
		warn("give it 3 replicas and min.insync.replicas 2", "it has one replica: what a lost broker held is lost, acknowledged or not")
	case need == 1:
		warn("set its min.insync.replicas to 2", "min.insync.replicas is 1: an acknowledgement can rest on a single broker, with which it is lost")
	case int64(replicas) == need:
		warn("set its min.insync.replicas to one less, or add a replica", "min.insync.replicas is as many as it has replicas, %d: events wait whenever one broker is away", replicas)
	}
	if limit := number("max.message.bytes"); limit >= 0 && limit < largestObject {
		warn("raise its max.message.bytes", "it takes messages of %d bytes at most, and an object can have %d: larger ones (compressed) become gap events", limit, largestObject)
	}
	s.judgeCleanup(settings["cleanup.policy"], warn)
	keep := number("retention.ms")
	deletes := strings.Contains(settings["cleanup.policy"], "delete")
	if age := time.Duration(keep) * time.Millisecond; deletes && keep >= 0 && age < shortRetention {
		warn("raise its retention.ms", "it keeps events for %v: readers that are away for longer miss them", age)
	}
	detail := fmt.Sprintf("%d partitions, %d replicas, min.insync.replicas %s, max.message.bytes %s, cleanup.policy %s",
		len(t.Partitions), replicas, settings["min.insync.replicas"], settings["max.message.bytes"], settings["cleanup.policy"])
	if deletes {
		detail += fmt.Sprintf(", retention.ms %s, retention.bytes %s", settings["retention.ms"], settings["retention.bytes"])
	}
	return append([]diagnose.Finding{{Step: sinks.StepTopic, Target: target, Detail: detail}}, findings...)
}

func (s *Sink) judgeCleanup(policy string, warn func(remedy, format string, args ...any)) {
	switch {
	case strings.Contains(policy, "compact") && !s.cfg.Tombstones:
		warn("set kafka.tombstones: true", "it is compacted: of each object the last event stays, also that of its deletion, for ever")
	case !strings.Contains(policy, "compact") && s.cfg.Tombstones:
		warn("set its cleanup.policy to compact, or leave kafka.tombstones out", "kafka.tombstones is set, and its cleanup.policy is %s: the tombstones have no effect", policy)
	}
}

// replication is the smallest numbers of replicas over the partitions, and how many partitions have no leader.
func replication(t *metadata.ResponseTopic) (replicas, inSync, leaderless int) {
	for i, p := range t.Partitions {
		if i == 0 || len(p.ReplicaNodes) < replicas {
			replicas = len(p.ReplicaNodes)
		}
		if i == 0 || len(p.IsrNodes) < inSync {
			inSync = len(p.IsrNodes)
		}
		if p.LeaderID < 0 {
			leaderless++
		}
	}
	return replicas, inSync, leaderless
}
