package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/test/poll"
)

const readTimeout = 3 * time.Minute // generous: the broker may have to elect leaders first

// CreateTopic makes a topic and returns when all its partitions can be written to. Configs are topic settings as in
// {"cleanup.policy": "compact"}; nil for none. The broker decides on the replication factor.
func CreateTopic(t testing.TB, addr, topic string, partitions int, configs map[string]string) {
	t.Helper()
	CreateReplicated(t, addr, topic, partitions, -1, configs)
}

// CreateReplicated is [CreateTopic] with a replication factor.
func CreateReplicated(t testing.TB, addr, topic string, partitions, replicas int, configs map[string]string) {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	values := make(map[string]*string, len(configs))
	for name, value := range configs {
		values[name] = &value
	}
	// A controller that has just stood still takes the brokers for dead for a moment, and has none for the replicas.
	retry(ctx, t, "creating the topic "+topic, func() error {
		_, err := admin.CreateTopic(ctx, int32(partitions), int16(replicas), values, topic)
		if err != nil && !errors.Is(err, kerr.InvalidReplicationFactor) {
			t.Fatalf("creating the topic %s: %v", topic, err)
		}
		return err
	})
	awaitLeaders(ctx, t, admin, topic, partitions)
}

// awaitLeaders waits until all partitions of a topic can be written to. The metadata name a leader before the leader
// knows of it.
func awaitLeaders(ctx context.Context, t testing.TB, admin *kadm.Client, topic string, partitions int) {
	t.Helper()
	retry(ctx, t, "looking for the leaders of "+topic, func() error {
		ends, err := listed(admin.ListEndOffsets(ctx, topic))
		if err == nil && len(ends[topic]) != partitions {
			err = fmt.Errorf("it has %d partitions", len(ends[topic]))
		}
		return err
	})
}

// listed returns the error of any partition too.
func listed(offsets kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	return offsets, errors.Join(err, offsets.Error())
}

// retry repeats what fails while the broker does not lead its partitions: the controller takes a broker for dead that
// has stood still for some seconds.
func retry(ctx context.Context, t testing.TB, what string, try func() error) {
	t.Helper()
	if err := poll.Until(ctx, 10*time.Millisecond, readTimeout, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// SetTopicConfig changes a setting of a topic, as in "max.message.bytes", and waits until the broker knows it.
func SetTopicConfig(t testing.TB, addr, topic, name, value string) {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	changed, err := admin.AlterTopicConfigs(
		ctx,
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}},
		topic,
	)
	if err == nil {
		_, err = changed.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatalf("setting %s of topic %s: %v", name, topic, err)
	}
	retry(ctx, t, "describing the topic "+topic, func() error {
		described, err := admin.DescribeTopicConfigs(ctx, topic)
		if err == nil && !slices.ContainsFunc(described[0].Configs, func(c kadm.Config) bool {
			return c.Key == name && c.MaybeValue() == value
		}) {
			err = errors.New("the broker does not know the setting")
		}
		return err
	})
}

// Grant gives [User] permissions, and waits until the broker knows them.
func Grant(t testing.TB, addr string, acls *kadm.ACLBuilder) {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	acls = acls.Allow("User:" + User).AllowHosts()
	results, err := admin.CreateACLs(ctx, acls)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		t.Fatalf("granting permissions: %v", err)
	}
	// The controller has them; the broker may not have them yet.
	retry(ctx, t, "describing the permissions", func() error {
		described, err := admin.DescribeACLs(ctx, acls)
		if err == nil && slices.ContainsFunc(described, func(d kadm.DescribeACLsResult) bool {
			return len(d.Described) == 0
		}) {
			err = errors.New("the broker does not know them")
		}
		return err
	})
}

// HasTopic reports whether there is a topic.
func HasTopic(t testing.TB, addr, topic string) bool {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		t.Fatalf("looking for the topic %s: %v", topic, err)
	}
	return topics.Has(topic)
}

// ReadAll returns all records that the topic holds now, of each partition in its order, read by a client that
// has nothing in common with the one under test. It leaves out none but the markers of transactions.
func ReadAll(t testing.TB, addr, topic string) [][]*kgo.Record {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	var starts, ends kadm.ListedOffsets
	retry(ctx, t, "reading the ends of "+topic, func() (err error) {
		if ends, err = listed(admin.ListEndOffsets(ctx, topic)); err == nil {
			starts, err = listed(admin.ListStartOffsets(ctx, topic))
		}
		return err
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.FetchMaxWait(200*time.Millisecond), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	from := map[string]map[int32]kgo.Offset{topic: {}}
	open := map[int32]int64{} // partition to its end, while records are missing
	records := make([][]*kgo.Record, len(ends[topic]))
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, end.Partition)
		if end.Offset > start.Offset {
			from[topic][end.Partition] = kgo.NewOffset().At(start.Offset)
			open[end.Partition] = end.Offset
		}
	})
	if len(open) > 0 {
		client.AddConsumePartitions(from)
	}
	for len(open) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				records[r.Partition] = append(records[r.Partition], r)
			}
			// A compacted partition's last offset is always there: the active segment is never compacted.
			if end, isOpen := open[r.Partition]; isOpen && r.Offset >= end-1 {
				delete(open, r.Partition)
			}
		})
	}
	return records
}

func adminClient(t testing.TB, addr string) (*kadm.Client, context.Context) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
	t.Cleanup(func() { cancel(); client.Close() })
	return kadm.NewClient(client), ctx
}

// SetPartitions raises the number of partitions of a topic, and returns when all of them can be written to.
func SetPartitions(t testing.TB, addr, topic string, partitions int) {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	updated, err := admin.UpdatePartitions(ctx, partitions, topic)
	if err == nil {
		err = updated.Error()
	}
	if err != nil {
		t.Fatalf("adding partitions to %s: %v", topic, err)
	}
	awaitLeaders(ctx, t, admin, topic, partitions)
}

// DeleteTopic deletes a topic with all that it holds, and returns when the broker knows that: until then, it accepts
// records that nobody can read. Somebody else may have created the topic again.
func DeleteTopic(t testing.TB, addr, topic string) {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	before, err := admin.ListTopics(ctx, topic)
	if err == nil {
		_, err = admin.DeleteTopic(ctx, topic)
	}
	if err != nil {
		t.Fatalf("deleting the topic %s: %v", topic, err)
	}
	retry(ctx, t, "looking for the topic "+topic, func() error {
		topics, err := admin.ListTopics(ctx, topic)
		if err == nil && topics.Has(topic) && topics[topic].ID == before[topic].ID {
			err = errors.New("it is still there")
		}
		return err
	})
}

// Purge deletes all records that a topic holds now.
func Purge(t testing.TB, addr, topic string) {
	t.Helper()
	admin, ctx := adminClient(t, addr)
	retry(ctx, t, "deleting the records of "+topic, func() error {
		ends, err := listed(admin.ListEndOffsets(ctx, topic))
		if err != nil {
			return err
		}
		deleted, err := admin.DeleteRecords(ctx, ends.Offsets())
		return errors.Join(err, deleted.Error())
	})
}
