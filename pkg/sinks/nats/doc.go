// Package nats delivers events to a NATS JetStream stream.
//
// # What it does with each event
//
// It publishes with acknowledgement, with <cluster>/<the event's id> as Nats-Msg-Id and the stream's name as
// Nats-Expected-Stream. In binary mode the CloudEvents attributes are headers, ce-<name>, percent-encoded where
// needed; in structured mode there is the header content-type, and the body is the CloudEvent as JSON
// (CloudEvents NATS Protocol Binding, working draft after 1.0.2, which added headers).
//
// A restatement, and what a new destination is sent, has another Nats-Msg-Id, which only this
// process uses: the stream must take it although it holds the event.
//
// # Latest-state streams
//
// With StreamConfig.LastPerSubject the stream keeps the last message of each subject, and so the present state of each
// object. Then every message has a Nats-Msg-Id that only this process uses: after a crash the bridge repeats states,
// and a stream that knows the id of a newer one but not that of an older one would end with the older. Deletions have a
// TTL, where the stream allows it. With StreamConfig.KeyValue it is a key-value bucket, and a deletion deletes the key.
//
// # Order
//
// Up to MaxInFlight messages wait for their acknowledgement at once, but never two of one object: the second
// goes out when the first was acknowledged. A message that was perhaps written is sent again under the same id,
// and the stream drops the repetition as long as it remembers the id (its duplicate window, two minutes by
// default). The window also covers the one case in which order alone would not hold: a connection that broke
// while the server still had unread messages of it.
//
// # The connection
//
// The client (package natsconn) reconnects forever, and it buffers nothing while it is away: what was not acknowledged
// when the connection broke is reported as perhaps written, at once, and the queue keeps the rest. Acknowledgements
// come to an inbox of the sink's own and are read by Send itself. nats.go's PublishMsgAsync does the same with a future
// and a map entry for each message, fails all that is pending at a reconnection, and costs a third more CPU time and
// three times the allocations, the server's included (BenchmarkSend, BenchmarkPublishMsgAsync).
//
// # The stream
//
// A missing stream is created where the configuration says so, also when it goes missing while the bridge runs.
// A stream that exists is never changed. It is checked instead: what makes delivery impossible is an error, what
// can lose events behind the bridge's back is a warning.
//
// What is required of the stream, and what `bridge doctor` and `bridge tail` need, is in the package natscheck.
//
// # Large data
//
// [PayloadStore] keeps data that a destination takes no message for in a JetStream object store, on the connection of a
// sink or on one of its own.
//
// # The embedded server
//
// With Config.Embedded the sink runs a nats-server in the process (package embedded). Connect starts it, Close stops
// it.
package nats
