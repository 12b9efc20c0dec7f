package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// RegisterTopic holds the names of the clusters that write to the topics of a Kafka cluster. It is compacted, so that no
// retention removes them, and has one partition, so that of two clusters that register one name at once one is first.
const RegisterTopic = "deltabridge.clusters"

var (
	_ sinks.Identified    = (*Sink)(nil)
	_ diagnose.NameReader = (*Sink)(nil)
)

// entry is the value of a record of RegisterTopic. Its key is <topic template>/<cluster>/<uid>: each cluster writes under a key
// of its own, and compaction keeps all of them. A name belongs to the one with the lowest offset.
type entry struct {
	Cluster string    `json:"cluster"`
	UID     string    `json:"uid"`
	Since   time.Time `json:"since"`
	Topic   string    `json:"topic"` // the template
}

func (s *Sink) entryKey(cluster, uid string) string {
	return s.template.String() + "/" + cluster + "/" + uid
}

// Destination implements [sinks.Identified]: the Kafka cluster's own id and the template of the topic.
func (s *Sink) Destination() string {
	if s.cluster.id == "" {
		return ""
	}
	return fmt.Sprintf("topic %s of the Kafka cluster %s", s.template, s.cluster.id)
}

// Registered implements [sinks.Identified].
func (s *Sink) Registered(ctx context.Context, cluster string) (sinks.Registration, error) {
	entries, err := s.entries(ctx, cluster)
	if err != nil || len(entries) == 0 {
		return sinks.Registration{}, err
	}
	return sinks.Registration{UID: entries[0].UID, Since: entries[0].Since}, nil
}

// ReadName implements [diagnose.NameReader].
func (s *Sink) ReadName(ctx context.Context, cluster string) (sinks.Registration, error) {
	reader := &Sink{cfg: s.cfg, template: s.template, single: s.single, parts: s.parts, cluster: newCluster(&s.cfg)}
	defer reader.cluster.close()
	return reader.Registered(ctx, cluster)
}

// Register implements [sinks.Identified].
func (s *Sink) Register(ctx context.Context, owner sinks.Owner, replaced string) error {
	entries, err := s.entries(ctx, owner.Cluster)
	if err != nil {
		return err
	}
	if len(entries) > 0 && entries[0].UID != replaced || len(entries) == 0 && replaced != "" {
		return nil
	}
	value, err := json.Marshal(entry{owner.Cluster, owner.UID, time.Now().UTC(), s.template.String()})
	if err != nil {
		return err
	}
	// One batch, which is written as a whole: what others registered ends with the new record.
	var records []protocol.Record
	for _, e := range entries {
		records = append(records, protocol.Record{Key: protocol.NewBytes([]byte(s.entryKey(e.Cluster, e.UID)))})
	}
	records = append(records, protocol.Record{Key: protocol.NewBytes([]byte(s.entryKey(owner.Cluster, owner.UID))), Value: protocol.NewBytes(value)})
	p, err := s.registerPartition(ctx, true)
	if err != nil {
		return err
	}
	if err = s.write(ctx, p, records); err != nil || replaced != "" {
		return err
	}
	// Whoever was second takes its record back: it must not come into force when the name is handed over later.
	entries, err = s.entries(ctx, owner.Cluster)
	if err == nil && len(entries) > 0 && entries[0].UID != owner.UID {
		err = s.write(ctx, p, []protocol.Record{{Key: protocol.NewBytes([]byte(s.entryKey(owner.Cluster, owner.UID)))}})
	}
	return err
}

// registerPartition finds the partition of RegisterTopic. If the topic is missing, it creates it, or returns nil.
func (s *Sink) registerPartition(ctx context.Context, create bool) (*partition, error) {
	t := newTopic(RegisterTopic)
	if missing := s.fetch(ctx, []*topic{t}); len(missing) > 0 {
		if !create {
			return nil, nil
		}
		how := &CreateTopics{Partitions: 1, Config: map[string]string{cleanupPolicy: "compact"}}
		if c := s.cfg.CreateTopics; c != nil {
			how.ReplicationFactor = c.ReplicationFactor
		}
		failed, err := s.cluster.createTopics(ctx, []string{t.name}, how)
		if err == nil {
			err = failed[t.name]
		}
		if err != nil {
			return nil, noRegister(err)
		}
		s.awaitCreated(ctx, missing)
	}
	switch {
	case t.err != nil:
		return nil, noRegister(t.err)
	case len(t.partitions) == 0:
		return nil, s.unreachable(&t.nowhere)
	case t.partitions[0].leader == "":
		return nil, s.unreachable(t.partitions[0])
	}
	return t.partitions[0], nil
}

// noRegister marks an error of the topic itself, which does not pass by trying again: a missing right, a topic that can't be.
func noRegister(err error) error {
	code, ok := errors.AsType[kafkago.Error](err)
	if !ok || code.Temporary() {
		return err
	}
	return fmt.Errorf("%w in the topic %s: %w", sinks.ErrNoRegister, RegisterTopic, err)
}

// entries are the clusters that registered a name, in the order in which they did.
func (s *Sink) entries(ctx context.Context, cluster string) ([]entry, error) {
	p, err := s.registerPartition(ctx, false)
	if p == nil || err != nil {
		return nil, err
	}
	r := &reading{sink: s}
	one := &readPartition{partition: p}
	if err := r.begin(ctx, one, time.Time{}); err != nil {
		return nil, noRegister(err)
	}
	prefix := s.entryKey(cluster, "")
	var entries []entry
	for one.open() {
		records, err := s.readRegister(ctx, one)
		if err != nil {
			return nil, noRegister(err)
		}
		for _, record := range records {
			uid, ours := strings.CutPrefix(record.key, prefix)
			if !ours {
				continue
			}
			entries = slices.DeleteFunc(entries, func(e entry) bool { return e.UID == uid && record.value == nil })
			if record.value == nil || slices.ContainsFunc(entries, func(e entry) bool { return e.UID == uid }) {
				continue
			}
			e := entry{Cluster: cluster, UID: uid}
			_ = json.Unmarshal(record.value, &e) // the key says what counts
			e.Cluster, e.UID = cluster, uid
			entries = append(entries, e)
		}
	}
	return entries, nil
}

type registerRecord struct {
	key   string
	value []byte // nil: the key is removed
}

// readRegister fetches the next records, and moves p behind them.
func (s *Sink) readRegister(ctx context.Context, p *readPartition) (records []registerRecord, err error) {
	msg, err := s.cluster.send(ctx, p.leader, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(fetchWait.Milliseconds()), MinBytes: 1, MaxBytes: fetchBytes, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: p.topic.name, Partitions: []fetch.RequestPartition{{
			Partition: p.id, CurrentLeaderEpoch: -1, FetchOffset: p.next, LogStartOffset: -1, PartitionMaxBytes: fetchBytes,
		}}}},
	})
	if err != nil {
		return nil, err
	}
	res := msg.(*fetch.Response)
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("kafka broker %s: no answer about topic %s", p.leader, p.topic.name)
	}
	found := res.Topics[0].Partitions[0]
	if code := kafkago.Error(found.ErrorCode); code != 0 {
		return nil, s.codeError("topic "+p.topic.name, code, "")
	}
	before := p.next
	for found.RecordSet.Records != nil {
		record, err := found.RecordSet.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read topic %s: %w", p.topic.name, err)
		}
		one, err := registerRecordOf(record)
		if err != nil {
			return nil, fmt.Errorf("read topic %s: %w", p.topic.name, err)
		}
		if record.Offset >= before { // a batch is sent as a whole
			records, p.next = append(records, one), record.Offset+1
		}
	}
	if p.next == before && found.RecordSet.Version > 0 {
		p.next++ // the rest of a batch that compaction has emptied
	}
	return records, nil
}

func registerRecordOf(record *protocol.Record) (one registerRecord, err error) {
	defer closeBytes(record)
	key, err := protocol.ReadAll(record.Key)
	if err != nil {
		return one, err
	}
	one.key = string(key)
	if record.Value == nil {
		return one, nil
	}
	one.value, err = protocol.ReadAll(record.Value)
	return one, err
}

// write appends the records in one batch.
func (s *Sink) write(ctx context.Context, p *partition, records []protocol.Record) error {
	for i := range records {
		records[i].Time = time.Now()
	}
	msg, err := s.cluster.send(ctx, p.leader, &produce.Request{
		Acks: acksAll, Timeout: int32((s.cfg.RequestTimeout * 2 / 3).Milliseconds()),
		Topics: []produce.RequestTopic{{Topic: p.topic.name, Partitions: []produce.RequestPartition{{
			Partition: p.id, RecordSet: protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(records...)},
		}}}},
	})
	if err != nil {
		return err
	}
	answer := answerFor(msg.(*produce.Response), p)
	if answer == nil {
		return fmt.Errorf("kafka broker %s: no answer about topic %s", p.leader, p.topic.name)
	}
	if code := kafkago.Error(answer.ErrorCode); code != 0 {
		return noRegister(s.codeError("topic "+p.topic.name, code, answer.ErrorMessage))
	}
	return nil
}
