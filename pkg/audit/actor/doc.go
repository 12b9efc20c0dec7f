// Package actor finds out who made a change: it joins changes, as a watch delivers them, with the audit events of the
// requests that made them.
//
// A [Joiner] is given both, in any order ([Joiner.Change], [Joiner.Event]), and gives one [Answer] for each change. It
// has no goroutine and no clock: the caller passes the time, and calls [Joiner.Expire] again and again.
//
// # What an answer means
//
// A request that changes nothing is answered with the version that somebody else wrote, so the version alone is no
// proof (ADR 43). An actor is
//
//   - Proven, if the audit event alone shows that its request made the change. It is given as soon as both are there.
//   - Sole, if its request is the only one that can have made the change. It is given at the end of the wait.
//   - unknown (nil) otherwise. In particular, two requests of which neither can be excluded mean unknown.
//
// A deletion has two actors: who requested it, and who completed it, such as a controller that removed the last
// finalizer. They are the same if the object never had a deletionTimestamp. Otherwise the first is the actor of the
// change that set it (Marked), which the Joiner remembers for at least 4096 objects, but not after a restart.
//
// # When requests cannot have made a change
//
// Because each request could be the rival of another one, everything that may have written is taken into account, even
// if it can never be an actor itself: requests that failed in a way that does not exclude a write, or whose response
// does not show the version. A request is excluded if
//
//   - it cannot make changes of this kind: only deletions and evictions set a deletionTimestamp, for example;
//   - its response shows another version, or that it had no effect;
//   - it was received after another request that shows the new version was completed, or after the change was read;
//   - it was completed before another request that found or wrote the previous version was received, or before
//     Change.Since.
//
// # What the caller must do
//
// A Sole actor can be wrong if a request is missing. Therefore the caller must
//
//   - audit all requests that write an object of these resources, except events of the stage RequestReceived. At other
//     levels than RequestResponse they are only rivals, except for creations and for deletions without finalizers;
//   - pass all audit events of these resources, or say that some are missing ([Joiner.Missing]): if the intake was down
//     or refused events, or if API servers count lost events. The Joiner itself notices events that arrive later than
//     Wait, and what it drops;
//   - pass the changes of a watch only, each once. A list may have several changes in one state. An object that enters
//     or leaves the selection of a watch is passed as Updated, with 0 as Before when it enters;
//   - set Change.Since if the watch was interrupted, or if the caller did not read it for longer than Wait;
//   - know MaxSkew. Zero is right for one API server whose clock is that of the bridge.
//
// A request that is still running at the end of the wait counts as missing, such as a deletecollection of very many
// objects. Changes that are not made by requests, such as the expiry of Events, have no actor.
//
// # Limits
//
// What is kept has at most Options.MaxBytes: beyond that, the oldest audit events are dropped, and if there are none,
// the changes that wait longest are answered. Audit events are also dropped after Options.Keep. A change that may have
// been made before a dropped event arrived gets no Sole actor. The time for an audit event grows linearly with its
// size, whatever clients put into it.
package actor
