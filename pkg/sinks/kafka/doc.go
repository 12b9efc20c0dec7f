// Package kafka delivers events to Apache Kafka topics.
//
// # The record
//
// Each event is one record, encoded according to the CloudEvents Kafka protocol binding 1.0. In binary mode, each
// attribute is a header ce_<name>, the header content-type contains datacontenttype, and the value is the payload. In
// structured mode, the header content-type is application/cloudevents+json and the value is the whole event. The
// record's key is the message's PartitionKey. The record's timestamp is the time at which the record was sent, as with
// the Java client. The attribute "time" contains the time of the event. (Brokers forget a producer when the timestamp
// of its newest record is a day old. They would then no longer preserve the order after failures.)
//
// # Partition and order
//
// The sink chooses the same partition for a key as Kafka's Java client does: murmur2(key) & 0x7fffffff modulo the
// number of partitions, whether or not they have a leader. All events of an object have the same key and therefore the
// same partition. The events of a partition are written in the order of the batch:
//
//   - Only one request at a time is in flight to a broker. It contains at most one record batch per partition. The sink
//     sends to several brokers in parallel.
//   - If the batch for a partition fails, the sink sends no later events to this partition until it has sent the batch
//     again.
//   - A batch that was perhaps written (after a timeout or a lost connection) can still be in a buffer of the network
//     or of the broker. It could then be written after the retry and after newer events. The sink is therefore an
//     idempotent producer: it sends the batch again with the same sequence number, and the broker writes the batch
//     once, in the correct position. If the next Send does not contain the same messages, the sink fences the partition
//     again.
//
// # Fences
//
// If [Sink.Resume] was called, each partition is fenced before the first event is written to it. A fence ensures that
// no earlier process writes to the partition any more, not even a request that is late in the network, and then reads
// back what the earlier processes have written. Events that are found are not sent again ([sinks.ErrStored]). ADR 30
// explains why, and the type fence explains how. After a batch in doubt, the sink also fences the partition: it takes a
// new producer epoch, waits for its marker in the partition, and reads back whether the batch was written.
//
//   - Each partition has a transactional id: deltabridge.<writer>.<topic>.<partition>. A partition that is missing,
//     forbidden or without a leader therefore delays only its own events. Fences run in the background. Send waits for
//     a second at most, and then returns a [sinks.UnavailableError] for partitions that are not fenced yet.
//   - Before the transactional id of a partition is used for the first time, the end of the partition is stored as its
//     position ([sinks.Resume]).
//   - If partitions were added, or the key template was changed, since the last position was stored, an object's events
//     can be in another partition than before. Nothing is written to the topic before all partitions with a position
//     are read back.
//   - A fence is renewed every few hours, because Kafka forgets producers that do not write.
//   - Another transactional id, deltabridge.<writer>, is the arbiter between processes: the last process that has
//     claimed it may fence partitions. An older process, which hung for example, stops writing to all partitions when
//     it wants to fence one or finds that it was fenced. The newest process fences a partition again if an older one
//     has taken it.
//   - Without the permissions for fences, on a cluster that does not support transactional ids, and without Resume, all
//     partitions share an idempotent producer without a transactional id. Instead of a fence, the sink increments the
//     producer's epoch for the partition after a batch in doubt. The broker then rejects batches with an older epoch
//     (KIP-98, KIP-360). After a restart, events can be written again, with the same event ids, and a late request of
//     the previous process can be written after newer events. After some minutes, the sink tries to fence its
//     partitions again.
//
// While the bridge runs, failures of brokers and networks cause neither duplicates nor reordering. The sink does not
// connect to a cluster that does not grant a producer id.
//
// If partitions are added to a topic, some keys move to another partition: an object's older events stay in the old
// partition, and its newer events go to the new one. Only a consumer that merges the partitions by time or
// resourceVersion sees these events in order. This is true of every Kafka producer. The sink detects new partitions
// within [MetadataMaxAge].
//
// If the topic or key template uses a variable whose value can change during an object's lifetime ({operation}, {uid},
// {version}), the object's events go to several partitions. The sink then waits for the acknowledgement of an event
// before it sends the object's next event to another partition. The cost is a larger number of smaller requests. The
// same applies to events that an earlier process has left on disk with the keys of another template.
//
// # Acknowledgement
//
// The sink uses acks=all. The topic's min.insync.replicas determines how many replicas must have an event before it is
// acknowledged. Each request has a time limit (Config.RequestTimeout), so the sink detects a broker that accepts
// connections but does not answer.
//
// # Access
//
// The sink supports TLS, mutual TLS, SASL PLAIN, SCRAM, OAUTHBEARER and AWS_MSK_IAM. Every few seconds, before it uses
// a connection, it checks whether the TLS and SASL files have changed since the connection was opened. If they have
// changed, the sink reconnects. If it cannot reconnect, it keeps the old connection until that connection ends or the
// files change again. Each failure to connect is a [sinks.ConnectError]. [Sink.Check] performs the same steps and
// inspects the topics, without changing anything.
//
// # Size
//
// A batch contains up to 1 MiB, the default of max.message.bytes. If a topic accepts less, the broker rejects the
// batch. The sink then halves the batch until the broker accepts it, and remembers the smaller size. If an event is too
// large even in a batch by itself, the sink rejects the event ([sinks.ErrOversize]). The sink does not read the limits
// beforehand, because reading them would require one more permission and because the limits could change before the
// batch is sent.
//
// # Tombstones
//
// With Config.Tombstones, a deletion is two records in one batch: the event, followed by a record with the same key, a
// null value, and only the headers by which the deletion is found again. This also applies to a leave and to a gap
// event that replaces a rejected deletion. Such a gap event is sent to the object's topic. In a topic with
// cleanup.policy=compact, Kafka keeps the last record of each key. The tombstone must therefore come last: the state of
// existing objects stays, and a deleted object disappears after delete.retention.ms. Consumers of the event stream
// receive the deletion event with or without tombstones. Topic and key together must identify one object, as the
// defaults do. Control events have other keys. With Tombstones, the sink creates topics with cleanup.policy=compact
// unless CreateTopics.Config contains another policy.
//
// # Control events
//
// Control events can have a topic of their own ([Config.WithControl]), which is a part of the destination like any
// other topic: it is fenced, read back, created and parked for in the same way. A gap event then contains the ends of
// the partitions of its resource, which the sink requests before it writes the gap event. All earlier events of the
// resource are acknowledged by then, and no later one is sent. The gap event that replaces a rejected deletion is
// written first, and then the tombstone: only the tombstone shows that the deletion needs no further work.
//
// # Progress events
//
// A progress event is written to every partition of the topic of its resource, or once to the topic of control events,
// with the ends of the partitions as its position. Its records have no header of the sink, so they are not read back.
// The sink fences all these partitions, as before an event, but does not wait for the fences. If it is not known
// whether a progress event was written, the partition is settled before the next event, like after any batch in doubt.
//
// # Schema registry
//
// With Config.SchemaRegistry, each value has the id of its schema in a schema registry. In the format avro, the value
// is an Avro record in the Confluent wire format, which begins with the id. In the format json, the value is that of
// structured mode, and the id is in a header. The other headers are those of structured mode. Before the sink writes to
// a topic for the first time, it requests the id, in the background: a topic whose schema the registry does not accept
// is an unavailable part of the destination. The sink never requests the id again, so it can repeat a batch unchanged.
// Dead letters have no schema. ADR 41 explains why.
//
// # Topics
//
// If Config.CreateTopics is set, the sink creates missing topics, even a topic that is deleted later. Otherwise events
// wait until the topic exists, and the error names the missing topic. The sink never changes an existing topic.
//
// # Why kafka-go is used only in part
//
// kafka-go encodes requests, decodes responses, compresses, chooses partitions, and performs the SASL exchanges. This
// package implements the producer, because kafka-go's Writer lingers for a second, has no producer id, and does not
// preserve the order after failures. kafka-go's RecordSet has no producer id either. kafka-go's Transport reads the
// metadata of all topics every few seconds, cannot read the metadata on demand, sets no time limit for a SASL exchange,
// and does not report whether a failed request was sent. kafka-go's Conn and Reader panic on compacted batches. ADR 25
// contains the measurements.
//
// The package kafkacheck checks the configuration and the topics. The package kafkaread reads records back and
// implements the register of cluster names. The package internal/wire manages the connections, and internal/registry
// those to the schema registry.
package kafka
