// Package natslog is a [statelog.Log] on a JetStream stream with one subject. A record is a message, and its position
// is the message's sequence. An empty log ends at position 1.
//
// Append names the sequence of the message that the record must follow (Nats-Expected-Last-Sequence), and waits for the
// acknowledgement before it returns. The server compares the number with the stream's last sequence when it receives
// the message and again when it stores it, so that at most one process adds a record behind another record. This is the
// only fence, and it requires neither atomic batches nor a certain version. With several messages in flight, there
// would be no fence, because the server refuses only the message whose place is taken.
//
// A change of the leader can swallow a message or its acknowledgement. A refusal (10071) can be due to an earlier
// attempt of the same Append, or to a message that is not stored yet and perhaps never will be. Therefore Append looks
// at what the leader has stored at the position: its own record, another record ([statelog.ErrConflict]), or nothing.
// If the leader has stored nothing, Append sends the record again. Append does not ask replicas (direct get), because
// they can lag behind.
//
// Shortly after a change of the leader, a server can report a last sequence that is too low. Fence and Read then return
// a position before the end, and the next Append returns ErrConflict.
//
// Truncate purges the stream up to a sequence. A purged stream keeps its last sequence, even if it is empty. If the
// stream is deleted and created again, its sequences begin again. Append then returns ErrConflict, and the first Read
// of the new stream returns position 1 and no record if it was to begin at a later position. A new Log can't detect
// that the stream was created again, unless the stream is shorter than before.
//
// The headers are specified in https://docs.nats.io/nats-concepts/jetstream/headers. For requests to the leader and
// direct gets, see ADR-31 of github.com/nats-io/nats-architecture-and-design, for pull consumers ADR-13. The user must
// be allowed to publish to the subject, and to these subjects of the stream in the JetStream API: STREAM.INFO,
// STREAM.CREATE if the stream is created, STREAM.MSG.GET, STREAM.PURGE, CONSUMER.CREATE and CONSUMER.MSG.NEXT.
// Without CONSUMER.DELETE, the server removes the consumers of Read after a minute.
package natslog
