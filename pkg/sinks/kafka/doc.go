// Package kafka delivers events to Apache Kafka topics.
//
// # The record
//
// Each event is one record in the form of the CloudEvents Kafka protocol binding 1.0. Binary mode: the attributes
// are headers ce_<name>, the header content-type holds datacontenttype, the value is the payload. Structured mode:
// the header content-type says application/cloudevents+json, the value is the whole event. The key is the
// message's PartitionKey. The record's timestamp is when it was sent, as the Java client does it; the event's own time
// is the attribute "time". (Brokers forget a producer whose newest record is a day old by its timestamp, and what they
// remember is what keeps order over failures.)
//
// # Partition and order
//
// The partition of a key is the one that Kafka's Java client chooses: murmur2(key) & 0x7fffffff modulo the number of
// partitions, whether or not they have a leader. All events of an object have one key, hence one partition, and a
// partition's events are written in the order of the batch:
//
//   - One request at a time is in flight to a broker; it carries at most one record batch for each partition. Brokers
//     are served in parallel.
//   - If the batch of a partition fails, nothing that follows it in this partition is sent before it was sent again.
//   - A batch that was perhaps written (time-out, connection lost) can still lie in a buffer of the network or of the
//     broker, and would be written after its own repetition and after newer events. The sink is therefore an
//     idempotent producer: it sends the batch again under the same sequence number, and the broker writes it once, in
//     its place. If the messages do not come again as they were, the sink raises its producer epoch for the partition,
//     and the broker refuses what still comes with the old one (KIP-98, KIP-360).
//
// So failures of brokers and networks repeat nothing and turn nothing back while the bridge runs. A restart of the
// bridge can repeat, under the same event ids. It begins as another producer, which does not fence the one before it: a
// request that the bridge gave up when it ended, and that a hanging broker or network still holds, can be written after
// what the next run sends. The sink does not connect to a cluster that grants no producer id.
//
// If partitions are added to a topic, keys move: an object's older events stay in its old partition, newer ones go to
// another, and only a reader that merges by time or resourceVersion sees them in order. That is so for every Kafka
// producer. The sink notices new partitions within [MetadataMaxAge].
//
// A template for topic or key whose value changes during an object's life ({operation}, {uid}, {version}) spreads the
// object over several partitions. The sink then still waits for the acknowledgement of each event before it sends the
// object's next to another partition, at the cost of more, smaller requests.
//
// # Acknowledgement
//
// acks=all. Sent is what min.insync.replicas of the topic demands. Each request has a time limit
// (Config.RequestTimeout), so that a broker that accepts connections and answers nothing is noticed.
//
// # Access
//
// TLS, mutual TLS, SASL PLAIN, SCRAM and AWS_MSK_IAM. Every few seconds, before a connection is used, its files are
// compared with those that it was opened with; if they have changed the sink reconnects, and if that fails it keeps the
// old connection. Each failure on the way is a [sinks.ConnectError]. [Sink.Check] goes the same way, and looks at the
// topics, without changing anything.
//
// # Size
//
// A batch holds up to 1 MiB, the default of max.message.bytes. A topic that takes less says so: the batch is then
// halved until it passes, and the smaller size remembered. An event that is refused when it is alone is rejected
// ([sinks.ErrOversize]). The limits are not read beforehand: that would need one more permission, and the broker
// is the judge, at the moment when it counts.
//
// # Tombstones
//
// With Config.Tombstones a deletion (also one that means "left the filter", and the gap event in the place of one that
// was refused, which then has the object's topic) is two records in one batch: its event, and after it a record of the
// same key with a null value and no headers. On a topic with cleanup.policy=compact the last record of a key is what
// remains, so it must be the tombstone: the state of what exists stays, what was deleted disappears after
// delete.retention.ms. Consumers of the event stream see the deletion as they would without tombstones. Topic and key
// must then name one object together: the defaults do. Control events have keys of their own. A topic that the sink
// creates gets cleanup.policy=compact with Tombstones, unless CreateTopics.Config says otherwise.
//
// # Topics
//
// A missing topic is created if Config.CreateTopics is set, also when it goes missing later; otherwise the events wait
// for it, with an error that says so. A topic that exists is never changed.
//
// # What is kafka-go, and what is not
//
// kafka-go encodes and decodes requests and answers, compresses, chooses partitions, and does the SASL exchanges. The
// producer is this package's own: kafka-go's Writer lingers for a second, has no producer id, and keeps no order over
// failures; its RecordSet has no producer id either. Its Transport reads the metadata of all topics every few seconds,
// can't be made to read them now, leaves a SASL exchange without a time limit, and does not say whether a request that
// failed had been sent. Its Conn and Reader panic on what compaction leaves of a topic. ADR 25 has the numbers.
//
// What the sink can do in addition to sending is in packages below: kafkacheck, and kafkaread for reading back and for
// the register of cluster names. Connections are in internal/wire.
package kafka
