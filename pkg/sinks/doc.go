// Package sinks delivers encoded events to message brokers: the contract that a broker's package fulfils (Sink),
// the classes of a failed delivery, and the one loop that acts on them (Drain).
//
// # What the loop promises
//
// A Drain belongs to one queue and one Sink. It takes a batch, sends it, and acknowledges to the queue what the
// broker acknowledged to it. What it promises holds for every broker, since brokers' packages only say what
// happened to each message, never what to do about it:
//
//   - Every message that it takes ends in exactly one of two ways: delivered (Hooks.OnSettled), be it with less data
//     than it had, or rejected (Hooks.OnRejected) with a gap event delivered in its place. Drain.Rejections says what
//     comes in between: the payload store and dead letters. Nothing is given up because of time or number of attempts.
//
//   - Two messages of one object are delivered in their order, whatever fails in between. A message can be
//     repeated after an unclear failure (MaybeWritten), under the same id, but only before a later message of
//     its object is sent: the last that the broker holds of an object is the newest. That holds for the event that
//     takes the place of a rejected one too; a gap event, which is about a resource, may come later.
//
//   - A control event (gap, synced) is sent when everything before it is settled, and nothing after it is sent
//     before it is settled itself: "synced" is never ahead of what it speaks of.
//
//   - A broker that is away, at the start or for hours, ends nothing: the loop tries again at least every
//     RetryInterval, or with exponential back-off up to ten seconds if the broker answers and rejects what it is asked.
//     It logs once that the destination is away and once that it is back.
//
//   - A part of the destination (a topic, a partition, a subject) that takes no events does not hold up the others, if
//     there is a place to park its events (Drain.Parked): they wait there, on disk, in order, and so does everything
//     that follows for the same part, and control events of the same resource. When the part takes events again, they
//     are delivered first.
//
// # What a failure says
//
// A destination that can't be used is a ConnectError: which server, which step, what came instead of what was expected,
// and which key of the configuration to look at. Its text is for the person who has to fix it, the same from one
// attempt to the next, and without secrets. What else a sink can say of its destination, for `bridge doctor`, `bridge
// explain` and `bridge tail`, is in the package diagnose.
package sinks
