package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// createdPoll is the interval at which CreateTopic checks whether the topic has leaders.
const createdPoll = 50 * time.Millisecond

// TopicsLike returns the existing topics that match the template and that the client is allowed to see, sorted by name.
// A template without variables is the name of a topic, which TopicsLike returns even if the topic does not exist.
func (c *Client) TopicsLike(ctx context.Context, template string) ([]Topic, error) {
	pattern := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(template, "?*") // a pattern for path.Match
	if pattern == template {
		return c.Topics(ctx, pattern)
	}
	topics, err := c.topics(ctx, nil) // all topics
	slices.SortFunc(topics, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(topics, func(t Topic) bool {
		matches, _ := path.Match(pattern, t.Name)
		return !matches || t.IsInternal
	}), err
}

// validTopic is not kept compiled, because that needs 0.2 MB.
const validTopic = `^[a-zA-Z0-9._-]{1,249}$`

// ValidateTopic reports a mistake if the value of the key topic is not the name of a topic.
func ValidateTopic(at *strictyaml.Section, topic string) {
	if !regexp.MustCompile(validTopic).MatchString(topic) && at.Fine("topic") {
		at.Report("topic", strictyaml.Quote(topic)+" is not a valid topic name", "use letters, digits, '.', '_' and '-'")
	}
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

// CreateTopic creates a topic and waits until it has leaders. An existing topic stays unchanged. With dryRun, the
// cluster only checks whether it would create the topic.
func (c *Client) CreateTopic(ctx context.Context, name string, how *NewTopic, dryRun bool) error {
	const brokerDefault = -1
	t := createtopics.RequestTopic{
		Name: name, NumPartitions: int32(cmp.Or(how.Partitions, brokerDefault)),
		ReplicationFactor: int16(cmp.Or(how.ReplicationFactor, brokerDefault)),
	}
	for key, value := range how.Config {
		t.Configs = append(t.Configs, createtopics.RequestConfig{Name: key, Value: value})
	}
	msg, err := c.Ask(ctx, &createtopics.Request{
		Topics:    []createtopics.RequestTopic{t},
		TimeoutMs: int32(c.Config.RequestTimeout.Milliseconds()), ValidateOnly: dryRun,
	})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	for _, t := range msg.(*createtopics.Response).Topics {
		if code := kafkago.Error(t.ErrorCode); code != 0 && code != kafkago.TopicAlreadyExists {
			return c.notCreated(name, code, t.ErrorMessage)
		}
	}
	if !dryRun {
		c.awaitLeaders(ctx, name)
	}
	return nil
}

// awaitLeaders waits until a new topic has leaders. Kafka acknowledges the creation of a topic before all brokers know
// the topic.
func (c *Client) awaitLeaders(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, c.Config.RequestTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if topics, err := c.Topics(ctx, name); err == nil && len(topics) == 1 && topics[0].Ready() {
			return
		}
		pause.For(ctx, createdPoll)
	}
}

// Settings contains the settings of a topic.
type Settings map[string]string

// Number returns a setting as an integer, or -1 if it is not an integer.
func (s Settings) Number(name string) int64 {
	if n, err := strconv.ParseInt(s[name], 10, 64); err == nil {
		return n
	}
	return -1
}

// TopicSettings reads the settings of a topic.
func (c *Client) TopicSettings(ctx context.Context, name string) (Settings, error) {
	const topicResource = 2
	msg, err := c.Ask(ctx, describe(topicResource, name))
	return settingsOf(msg, err)
}

// BrokerSettings reads the settings of one broker. It requires the permission DescribeConfigs on the cluster.
func (c *Client) BrokerSettings(ctx context.Context) (Settings, error) {
	const brokerResource = 4
	c.mu.Lock()
	brokers := c.brokers
	c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(brokers)) {
		msg, err := c.Send(ctx, brokers[id], describe(brokerResource, strconv.Itoa(int(id))))
		return settingsOf(msg, err)
	}
	return nil, errors.New("no broker is known")
}

func describe(resource int8, name string) *describeconfigs.Request {
	return &describeconfigs.Request{
		Resources: []describeconfigs.RequestResource{{ResourceType: resource, ResourceName: name}},
	}
}

func settingsOf(msg protocol.Message, err error) (Settings, error) {
	if err != nil {
		return nil, err
	}
	settings := make(Settings)
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
