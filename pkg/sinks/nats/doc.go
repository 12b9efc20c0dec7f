// Package nats delivers events to a NATS JetStream stream.
//
// # Messages
//
// The sink waits for JetStream's acknowledgement of every event. The header Nats-Msg-Id is <cluster>/<event id>.<epoch>
// (see event.Message), and Nats-Expected-Stream is the name of the stream. In binary mode, the CloudEvents attributes
// are headers named ce-<name>, percent-encoded where needed. In structured mode, the header content-type is set, and
// the body is the CloudEvent as JSON (CloudEvents NATS Protocol Binding, working draft after 1.0.2, which added
// headers).
//
// Restated events, and events that are sent again to a new destination, have a different Nats-Msg-Id, which contains
// Message.Delivery. The stream must store such a message even if it already has the same event.
//
// If Sink.Resume was called, every message has the header deltabridge (sinks.Mark). In structured mode, a message then
// also has the headers ce-id, ce-uid, ce-subject, ce-resourceversion and, if it is set, ce-finalstateunknown.
//
// # Nothing twice
//
// Before the first message, the sink reads the headers of all messages from the stored position to the end of the
// stream. The sink does not send an event if the stream has the event, or has a later event of the same object
// (sinks.Found). After an unclear failure, it does the same with the messages that this process wrote. The stored
// position is before every message that was perhaps written.
//
// The end of the stream includes what the stream's leader has received but not stored yet, which can be thousands of
// messages of a process that was killed. To find the end, the sink publishes an empty message with a last sequence that
// no stream can have (Nats-Expected-Last-Sequence). The stream refuses the empty message and answers with the sequence
// of the last message before it; the sink waits until the stream has stored that last message. Subscribers outside
// JetStream receive the empty message, with the character _ in place of all variables of the subject. If the stream
// refuses the message for another reason or the client has no permission to publish it, the sink warns and reads what
// is stored. Messages of another process that the leader receives later are dropped by their Nats-Msg-Id, within the
// duplicate window.
//
// The sink can't read back without the permission to create consumers, or if consumers remove what they read (retention
// interest and workqueue). Then only the duplicate window prevents repetitions.
//
// # Latest-state streams
//
// With StreamConfig.LastPerSubject, the stream keeps the last message of every subject and therefore the current state
// of every object. Every message names the sequence that the last message of its subject must have
// (Nats-Expected-Last-Subject-Sequence), and has no Nats-Msg-Id. If the stream refuses a message, the sink looks up the
// last message of the subject. If a process with the same writer sent that message, and it is the same event or a newer
// one, there is nothing to send. Otherwise, the sink sends its message again with the sequence of that message.
// Therefore a process that continues while its successor runs cannot replace a newer state by an older one, and a
// repetition of a change is never stored twice. The exceptions are in docs/delivery.md: a process with an older filter,
// a process from before a restored etcd, and a deletion that has expired. If messages cannot be looked up, because of a
// permission or an export, the last writer wins. If Sink.Resume was not called, the last writer wins as well, and every
// message has a Nats-Msg-Id.
//
// Deletions have a TTL if the stream allows TTLs. With Config.Bucket, the stream is a key-value bucket, and a deletion
// deletes the key.
//
// # Control events
//
// Control events can have a stream of their own ([Config.WithControl]). The sink then contains a second sink, with its
// own connection, position and read-back, to which it passes control events. That stream is a part of the destination:
// if it is unavailable, only control events are parked.
//
// # Progress events
//
// A progress event is one message, on a subject of its resource. Before it is sent, the sink checks that the stream of
// the objects is the one that it has sent the events to: a stream that was created again does not have them. Progress
// events have no header of the sink and are not read back. In a latest-state stream, the last writer wins.
//
// # Order
//
// Up to MaxInFlight messages wait for an acknowledgement at the same time, but never two messages of one object: the
// second message is sent when the first one is acknowledged. After an unclear failure, a message is sent again with the
// same id, unless the sink has read it back. Reading back is not sufficient if the connection breaks while the server
// still has unread messages from that connection. The stream recognizes the later copy of such a message by its id,
// and drops it, within the duplicate window (two minutes by default).
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
// tail`. Package natsack reads the answers of the stream.
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
