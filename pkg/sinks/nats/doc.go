// Package nats delivers events to a NATS JetStream stream.
//
// # Messages
//
// The sink publishes every event with acknowledgement. The header Nats-Msg-Id is <cluster>/<event id>.<epoch> (see
// event.Message), and Nats-Expected-Stream is the name of the stream. In binary mode, the CloudEvents attributes are
// headers named ce-<name>, percent-encoded where needed. In structured mode, the header content-type is set, and the
// body is the CloudEvent as JSON (CloudEvents NATS Protocol Binding, working draft after 1.0.2, which added headers).
//
// Restated events, and events that are sent again to a new destination, have a different Nats-Msg-Id that only this
// process uses. The stream must store such a message even if it already has the same event.
//
// # Latest-state streams
//
// With StreamConfig.LastPerSubject, the stream keeps the last message of every subject and therefore the current state
// of every object. Then every message has a Nats-Msg-Id that only this process uses. The reason is that the bridge
// repeats states after a crash. If the stream remembered the id of a newer state but not the id of an older one, it
// would store the older state again as the last message. Deletions have a TTL if the stream allows TTLs. With
// Config.Bucket, the stream is a key-value bucket, and a deletion deletes the key.
//
// # Order
//
// Up to MaxInFlight messages wait for an acknowledgement at the same time, but never two messages of one object: the
// second message is sent when the first one is acknowledged. After an unclear failure, a message is sent again with the
// same id. The stream drops the repetition as long as it remembers the id, which it does during its duplicate window
// (two minutes by default). The duplicate window also covers the one case in which sending in order is not sufficient:
// the connection breaks while the server still has unread messages from that connection.
//
// # The connection
//
// The client (package natsconn) reconnects until it succeeds and buffers nothing while it is disconnected. When the
// connection breaks, messages that are not acknowledged are immediately reported as possibly written, and the queue
// keeps all other messages. Acknowledgements are sent to an inbox of the sink and are read by Send itself. nats.go's
// PublishMsgAsync needs a future and a map entry per message and fails all pending messages when it reconnects. It uses
// a third more CPU time and three times the allocations, including the server's (BenchmarkSend,
// BenchmarkPublishMsgAsync).
//
// # The stream
//
// A missing stream is created if the configuration allows it, even if the stream disappears while the bridge runs. An
// existing stream is never changed, only checked. Settings that make delivery impossible are errors. Settings that can
// lose events without an error are warnings.
//
// Package natscheck checks what the stream must have, and implements the NATS parts of `bridge doctor` and `bridge
// tail`.
//
// # Large data
//
// [PayloadStore] stores data that is too large for a message of the destination in a JetStream object store. It uses
// the connection of a sink or a separate one.
//
// # The embedded server
//
// With Config.Embedded, the sink runs a nats-server in the bridge process (package embedded). Connect starts the
// server, and Close stops it.
package nats
