// Package event defines the value that flows from the informers to the sinks: what happened to which object,
// its deterministic id, and its CloudEvents 1.0 form.
//
// # Identity
//
// The id of an event depends on the change alone, so that the same change has the same id over restarts,
// re-lists and replicas:
//
//   - <uid>.<resourceVersion> for a state of an object (added, updated, and restated: telling it again makes no other);
//   - <uid>.deleted for its deletion, whether the deletion was seen or inferred from a list;
//   - <uid>.<resourceVersion>.deleted for a deletion under a labelSelector or fieldSelector, where it can also mean
//     that the object is no longer selected, and happen more than once;
//   - <uid>.<resourceVersion>.left where the object stopped passing a sink's filter, with the resourceVersion of
//     the state that does not pass: never the id of the real deletion, which may still come;
//   - the id of an addition or a leave that a changed filter, or a change of what is watched, causes ends in
//     .filter.<change>, so that an object that comes back with it is not taken for what was sent before; <change> is
//     the same over restarts;
//   - gap.… and synced.… with cluster, resource and resourceVersions for control events; the synced event of a list of
//     one namespace also with that, that of a resync with the time at which it began.
//
// # Ownership
//
// An Event is built by the listener of one sink and encoded at once. The Message that comes out is immutable, and
// its Data may be the very bytes that the informer's index and other sinks hold: nobody writes to them.
//
// # Order
//
// Two messages with equal [Message.Key] must reach the destination in the order in which they were encoded.
// Nothing is promised between keys.
package event
