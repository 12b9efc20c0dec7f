// Package sinks delivers encoded events to message brokers. It defines the contract of a broker's package (Sink), the
// classes of failed deliveries, and the loop that delivers events and handles failures (Drain).
//
// # Guarantees of the loop
//
// A Drain belongs to one queue and one Sink. It takes a batch from the queue, sends it, and acknowledges to the queue
// the messages that the broker acknowledged. The guarantees hold for every broker, because a broker's package only
// reports what happened to each message; the Drain decides what to do next:
//
//   - Every message ends in exactly one of three ways: it is delivered, possibly without a part of its data
//     (Hooks.OnSettled); it is not sent because the destination already has it, or because of Message.IfFound
//     (Hooks.OnStored); or it is rejected and a gap event is delivered in its place (Hooks.OnRejected). Before a gap
//     event is sent, the Drain tries the payload store and the dead-letter store that Drain.Rejections contains. If the
//     gap event is rejected too, nothing is sent. The Drain never gives up a message because of time or the number of
//     attempts.
//
//   - Two messages of one object are delivered in order, whichever attempts fail. After an unclear failure
//     (MaybeWritten) a message is tried again before a later message of its object is sent. Therefore the last message
//     of an object in the destination is always the newest. The same holds for the event that replaces a rejected
//     message. A gap event may come later, because it is about a resource and not about an object.
//
//   - Progress events (Hooks.Progress) are sent between two batches, when every message that was taken is settled or
//     parked. They are sent once, and only if the destination works. None of the other guarantees applies to them.
//
//   - Another control event (gap, synced) is sent when all earlier events are settled, and no later event is sent
//     before the control event is settled. Therefore a "synced" event never precedes the objects of its initial list.
//
//   - An unavailable broker never ends the loop, neither at startup nor after hours. The loop tries again at least
//     every RetryInterval, or with exponential back-off up to ten seconds if the broker answers with errors. It logs
//     that the destination is unavailable, again at most once a minute if the cause changes, and that it is available
//     again. While there is nothing to send, it checks the destination every 15 seconds. It tries an unavailable one as
//     often as if there were something to send.
//
//   - A part of the destination (a topic, a partition, a subject) that takes no events does not delay the other parts
//     if its events can be parked (Drain.Parked). Parked events wait on disk, in order. All later events for the same
//     part, and control events of the same resource, are parked too. When the part takes events again, the parked
//     events are delivered first.
//
// # Errors
//
// If a destination can't be used, the error is a ConnectError. It names the server, the failed step, the expected and
// the actual result, and the configuration key to look at. Its text is written for operators, is the same after every
// attempt, and contains no secrets. The package diagnose defines the other information that a sink can return about its
// destination, for `bridge doctor`, `bridge explain` and `bridge tail`.
package sinks
