package kafkalog

import (
	"context"
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// findLeader finds the leader of the partition, unless it is known. It creates the topic if it is missing and this is
// configured. The first time, it checks the topic.
func (l *Log) findLeader(ctx context.Context) error {
	if l.part.Leader != "" {
		return nil
	}
	t, err := l.topic(ctx)
	if create := l.cfg.newTopic(); create != nil && errors.Is(err, kafkago.UnknownTopicOrPartition) {
		if err := l.client.CreateTopic(ctx, l.part.Topic, create, false); err != nil {
			return err
		}
		l.cfg.Logger.Info("created Kafka topic for the state log", "topic", l.part.Topic)
		t, err = l.topic(ctx)
	}
	if err != nil {
		return err
	}
	if !l.checked {
		if err := l.check(ctx, t); err != nil {
			return err
		}
	}
	if len(t.Leaders) == 0 || t.Leaders[0] == "" {
		return fmt.Errorf("%s: %w", &l.part, kafkago.LeaderNotAvailable)
	}
	l.part.Leader = t.Leaders[0]
	return nil
}

// topic reads the metadata of the topic.
func (l *Log) topic(ctx context.Context) (*wire.Topic, error) {
	topics, err := l.client.Topics(ctx, l.part.Topic)
	switch {
	case err != nil:
		return nil, err
	case len(topics) != 1:
		return nil, fmt.Errorf("the metadata does not contain topic %s", l.part.Topic)
	}
	return &topics[0], topics[0].Err
}

// check returns an error if the topic can't contain a log. Settings that can't be read are not checked.
func (l *Log) check(ctx context.Context, t *wire.Topic) error {
	if n := len(t.Leaders); n > 1 {
		return l.wrong("create it anew with one partition", "topic %s has %d partitions, not one", t.Name, n)
	}
	settings, err := l.client.TopicSettings(ctx, t.Name)
	if err != nil {
		return nil //nolint:nilerr // a permission is missing, or a broker does not answer
	}
	l.checked = true
	for name, want := range map[string]string{cleanupPolicy: "delete", retentionMs: "-1", retentionBytes: "-1"} {
		if got, known := settings[name]; known && got != want {
			l.checked = false
			return l.wrong(fmt.Sprintf("set %s of the topic to %s", name, want),
				"%s of topic %s is %s: Kafka would delete records or reject them", name, t.Name, got)
		}
	}
	return nil
}

func (l *Log) wrong(remedy, format string, args ...any) error {
	return &sinks.ConnectError{
		Step: sinks.StepTopic, Key: "kafka.topic", Remedy: remedy, Err: fmt.Errorf(format, args...), Rejected: true,
	}
}
