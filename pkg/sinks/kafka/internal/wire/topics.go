package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// createdPoll is the interval at which CreateTopics checks whether the created topics are available.
const createdPoll = 50 * time.Millisecond

// TopicsLike returns the existing topics that match the template and that the client is allowed to see.
func (c *Client) TopicsLike(ctx context.Context, template *event.Template) ([]string, error) {
	msg, err := c.Ask(ctx, &metadata.Request{}) // all topics
	if err != nil {
		return nil, err
	}
	pattern := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(template.String(), "?*") // a pattern for path.Match
	var names []string
	for _, t := range msg.(*metadata.Response).Topics {
		if matches, _ := path.Match(pattern, t.Name); matches && !t.IsInternal {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// NewTopic configures new topics.
type NewTopic struct {
	// The number of partitions. 0 means the default of the brokers (`num.partitions`).
	Partitions int `yaml:"partitions" default:"0" min:"0" max:"10000" example:"12"`
	// The number of replicas. 0 means the default of the brokers (`default.replication.factor`).
	ReplicationFactor int `yaml:"replicationFactor" default:"0" min:"0" max:"1000" example:"3"`
	// The settings of a new topic, with Kafka's names.
	Config map[string]string `yaml:"config" example:"{cleanup.policy: compact, min.insync.replicas: 2}"`
}

// CreateTopics creates the topics and waits until they have leaders. Existing topics stay unchanged. The result
// contains an error for each topic that could not be created. With dryRun, the cluster only checks whether it would
// create the topics.
func (c *Client) CreateTopics(ctx context.Context, names []string, how *NewTopic, dryRun bool) map[string]error {
	failed := make(map[string]error)
	req := &createtopics.Request{TimeoutMs: int32(c.cfg.RequestTimeout.Milliseconds()), ValidateOnly: dryRun}
	for _, name := range names {
		t := createtopics.RequestTopic{Name: name, NumPartitions: -1, ReplicationFactor: -1}
		if how.Partitions > 0 {
			t.NumPartitions = int32(how.Partitions)
		}
		if how.ReplicationFactor > 0 {
			t.ReplicationFactor = int16(how.ReplicationFactor)
		}
		for _, key := range slices.Sorted(maps.Keys(how.Config)) {
			t.Configs = append(t.Configs, createtopics.RequestConfig{Name: key, Value: how.Config[key]})
		}
		req.Topics = append(req.Topics, t)
	}
	msg, err := c.askController(ctx, req)
	if err != nil {
		for _, name := range names {
			failed[name] = fmt.Errorf("create topic %s: %w", name, err)
		}
		return failed
	}
	for _, t := range msg.(*createtopics.Response).Topics {
		if code := kafkago.Error(t.ErrorCode); code != 0 && code != kafkago.TopicAlreadyExists {
			failed[t.Name] = c.notCreated(t.Name, code, t.ErrorMessage)
		}
	}
	if !dryRun {
		c.awaitCreated(ctx, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return failed[name] != nil
		}))
	}
	return failed
}

// awaitCreated waits until the topics have leaders. Kafka acknowledges the creation of a topic before all brokers know
// the topic.
func (c *Client) awaitCreated(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	for len(names) > 0 {
		topics, err := c.Topics(ctx, names...)
		if err == nil && !slices.ContainsFunc(topics, func(t Topic) bool { return !t.Ready() }) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(createdPoll):
		}
	}
}

// TopicSettings reads the topic settings that are relevant to the bridge.
func (c *Client) TopicSettings(ctx context.Context, name string) (map[string]string, error) {
	const topicResource = 2
	msg, err := c.Ask(ctx, &describeconfigs.Request{Resources: []describeconfigs.RequestResource{{
		ResourceType: topicResource, ResourceName: name,
		ConfigNames: []string{
			"min.insync.replicas", "max.message.bytes", "cleanup.policy", "retention.ms", "retention.bytes",
		},
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
