package kafkaread

import (
	"cmp"
	"context"
	"encoding/json"
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

// RegisterTopic contains the names of the clusters that write to topics of this Kafka cluster. It is compacted, so
// retention does not remove names. It has one partition, so the registrations have a total order.
const RegisterTopic = "deltabridge.clusters"

// Names is the register of the clusters that write to the topics of a template. It implements the methods of
// [sinks.Identified] about names.
type Names struct {
	Client            *wire.Client
	Template          string
	ReplicationFactor int // used if RegisterTopic must be created; 0 selects the broker's default
}

// entry is the value of a record in RegisterTopic. The record's key is <topic template>/<cluster>/<uid>, so compaction
// keeps one record per cluster. A name belongs to the cluster whose record has the lowest offset.
type entry struct {
	Cluster string      `json:"cluster"`
	UID     string      `json:"uid"`
	Since   time.Time   `json:"since"`
	Topic   string      `json:"topic"` // the topic template
	State   sinks.State `json:"state"`
}

// Registered implements [sinks.Identified].
func (n *Names) Registered(ctx context.Context, cluster string) (sinks.Registration, error) {
	entries, err := n.entries(ctx, cluster)
	if err != nil || len(entries) == 0 {
		return sinks.Registration{}, err
	}
	return sinks.Registration{UID: entries[0].UID, State: entries[0].State, Since: entries[0].Since}, nil
}

// Register implements [sinks.Identified].
func (n *Names) Register(ctx context.Context, owner sinks.Owner, replaced string) error {
	entries, err := n.entries(ctx, owner.Cluster)
	if err != nil {
		return err
	}
	if len(entries) > 0 && entries[0].UID != replaced || len(entries) == 0 && replaced != "" {
		return nil
	}
	value, err := json.Marshal(entry{owner.Cluster, owner.UID, time.Now().UTC(), n.Template, owner.State})
	if err != nil {
		return err
	}
	// One batch, which Kafka writes atomically, removes the other registrations and adds the new one.
	var b wire.Batch
	b.Reset(time.Now())
	for _, e := range entries {
		b.AppendNull(n.key(e.Cluster, e.UID))
	}
	b.Append(n.key(owner.Cluster, owner.UID), value)
	p, err := n.partition(ctx)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		how := &wire.NewTopic{
			Partitions: 1, ReplicationFactor: n.ReplicationFactor, Config: map[string]string{"cleanup.policy": "compact"},
		}
		if err := n.Client.CreateTopic(ctx, RegisterTopic, how, false); err != nil {
			return noRegister(err)
		}
		p, err = n.partition(ctx)
	}
	if err != nil {
		return err
	}
	return n.write(ctx, p, &b)
}

// key returns the key of a cluster's record.
func (n *Names) key(cluster, uid string) string { return n.Template + "/" + cluster + "/" + uid }

// partition returns the partition of RegisterTopic. If the topic does not exist, the error wraps
// kafkago.UnknownTopicOrPartition.
func (n *Names) partition(ctx context.Context) (*partition, error) {
	r := &reading{client: n.Client, templates: []string{RegisterTopic}, partitions: map[string]*partition{}}
	if err := r.look(ctx, time.Time{}); err != nil {
		return nil, noRegister(err)
	}
	p := r.partitions[RegisterTopic+"/0"]
	if p == nil {
		return nil, fmt.Errorf("topic %s: %w", RegisterTopic, kafkago.LeaderNotAvailable)
	}
	return p, nil
}

// noRegister marks errors that a retry does not fix, such as a missing permission or an invalid topic, with
// [sinks.ErrNoRegister].
func noRegister(err error) error {
	code, ok := errors.AsType[kafkago.Error](err)
	if !ok || code.Temporary() {
		return err
	}
	return fmt.Errorf("%w in the topic %s: %w", sinks.ErrNoRegister, RegisterTopic, err)
}

// entries returns the entries of the clusters that registered this name, in the order of registration.
func (n *Names) entries(ctx context.Context, cluster string) (entries []entry, err error) {
	prefix := n.Template + "/" + cluster + "/"
	err = Read(ctx, n.Client, []string{RegisterTopic}, diagnose.ReadOptions{}, func(r *diagnose.Record) error {
		uid, ours := strings.CutPrefix(r.Key, prefix)
		at := slices.IndexFunc(entries, func(e entry) bool { return e.UID == uid })
		switch {
		case !ours:
		case at >= 0 && r.Data == nil:
			entries = slices.Delete(entries, at, at+1)
		case at < 0 && r.Data != nil:
			var e entry
			_ = json.Unmarshal(r.Data, &e) // The key contains the values that matter.
			e.Cluster, e.UID = cluster, uid
			entries = append(entries, e)
		}
		return nil
	})
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return nil, nil
	}
	return entries, noRegister(cmp.Or(err, context.Cause(ctx)))
}

// write writes a batch, without a producer id.
func (n *Names) write(ctx context.Context, p *partition, b *wire.Batch) error {
	set, err := b.Encode(nil, wire.NoProducer(), -1)
	if err != nil {
		return err
	}
	answer, err := p.Produce(ctx, n.Client, set)
	if err != nil {
		return err
	}
	if code := kafkago.Error(answer.ErrorCode); code != 0 {
		return noRegister(n.Client.CodeError("topic "+p.Topic, code, answer.ErrorMessage))
	}
	return nil
}
