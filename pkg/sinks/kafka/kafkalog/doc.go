// Package kafkalog is a [statelog.Log] on a Kafka topic with one partition. A record is a Kafka record without key and
// headers, in a batch of its own. Its position is its offset.
//
// # The fence
//
// The log has a transactional id, deltabridge.state.<topic>, but no transactions. Fence requests a producer with
// InitProducerId, which increments the epoch, and writes a record with a null value in the new epoch. Readers skip such
// records. From this record on, the partition rejects the batches of older epochs (INVALID_PRODUCER_EPOCH), whether or
// not they belong to a transaction. The offset in the acknowledgement is therefore the end of what earlier processes
// can have written. The next leader knows the epoch too, because it has the record (acks=all).
//
// Only the bridge reads a state log. Therefore the fence can be a record. The fence of a sink must be invisible to
// consumers, so it is the marker of an empty transaction, which must be read back and can be missing (KAFKA-20734). See
// the type fence of package kafka.
//
// # Append
//
// A record has the producer's next sequence number, and one is in flight at a time. After a failure, it is repeated
// with the same number, and the broker writes it once (KIP-98). The broker's answer to a repetition contains the offset
// of the first attempt, or is DUPLICATE_SEQUENCE_NUMBER. In the second case, Append finds the offset by reading. If the
// broker does not accept the epoch or the number any more, Append reads whether an earlier attempt has written the
// record. If so, Append succeeds although another process has fenced this one, and the next Append returns
// [statelog.ErrConflict].
//
// If the topic was deleted and created again, the broker knows neither epoch nor number, and can accept the record at
// an offset before that of the last one. Append then returns ErrConflict although the record was written.
//
// # Renewal
//
// A partition forgets a producer that has written nothing for a day (producer.id.expiration.ms), and then accepts older
// epochs. A coordinator forgets a transactional id that was not used for a week (transactional.id.expiration.ms), and
// then grants another producer id, which does not fence the previous one. Both are harmless: a process whose last
// InitProducerId is more than [wire.FenceInterval] ago requests its next epoch before it appends, and the coordinator
// refuses this request if there is a newer process. A log to which nothing is appended requires no renewal.
//
// The epoch must stay the same while a record is in doubt. If that takes twice the interval, Append returns
// ErrConflict, because the partition may forget the sequence number. Read then shows whether the record was written.
//
// # Truncate
//
// Truncate deletes the records before an offset with DeleteRecords, at once and exactly. It requires the permission
// Delete. Tombstones in a compacted topic would not require it, but each record would need a key and a tombstone. Kafka
// would remove them late and segment by segment, and never from the active segment. Kafka rejects DeleteRecords for
// topics with cleanup.policy=compact, so the topic must have cleanup.policy=delete and unlimited retention. Kafka frees
// the disk space of whole segments, so a topic that the log creates has segments of 64 MiB. DeleteRecords is not
// fenced, but an earlier process only knows earlier positions.
//
// # Failures
//
// Each method finds the leader or the coordinator again and repeats its requests for up to Config.RequestTimeout, and
// then returns the last error. It returns at once if repetition does not help, for example if a permission is missing.
//
// The log requires the permissions Describe, Read, Write and Delete on the topic, and Describe and Write on the
// transactional id. With DescribeConfigs, it checks the retention. Config.CreateTopics requires Create.
//
// Sources: the Kafka protocol guide; KIP-98 (idempotent producers, epochs), KIP-360 (InitProducerId with the producer's
// current epoch; producers outlive their records), KIP-107 (DeleteRecords), KIP-207 (the end of a partition does not go
// back when the leader changes).
package kafkalog
