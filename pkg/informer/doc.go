// Package informer turns list and watch of one resource into ordered changes. Package fleet runs the informers of all
// that is to be watched.
//
// An [Informer] watches one resource (in one namespace, or in all) through client-go's cache.Reflector and hands
// each change to its handlers, which are client-go's own cache.ResourceEventHandler.
//
//   - Identity: an object is its uid. Delete and re-create under one name, seen as one update with another uid, are
//     two calls: OnDelete (final state unknown), then OnAdd.
//   - Order: handlers are called in resourceVersion order, by one goroutine, one handler after the other, each
//     before the next change is read. Within a list, deletions come first and additions follow in resourceVersion
//     order.
//   - Backpressure: a handler that blocks stops the reading of the watch, and TCP carries that to the API server. No
//     queue stands between the watch and the handlers. This is why cache.SharedIndexInformer, whose listener ring is
//     unbounded, is not used.
//   - No change, no call: updates whose resourceVersion did not change (a re-list, a resync) are not handed on.
//   - Deletions: OnDelete is always given an *object.Object, never a cache.DeletedFinalStateUnknown. Where the
//     deletion itself was not seen, the object is the last known state with FinalStateUnknown set.
//   - Selectors: to a watch with a label or field selector an object that leaves the selection is deleted, and one that
//     comes back is added, with the same uid. The API server sends the same event as for a real deletion, with the last
//     state that was selected and the resourceVersion of the change; so FinalStateUnknown is not set, and nothing tells
//     the two apart. Ids that are made from the uid alone repeat when an object leaves twice.
//   - Completeness: intermediate states can be missing only after a re-list; each one is announced to handlers that
//     are [Observer]s. Final states and deletions are never missing. A list that fails or ends early changes nothing.
//   - Malformed documents: one that is not a watch event ends the watch, which is opened again at the same position. If
//     the API server sends one there again, the resource is listed, and observers are given the gap. Both count as
//     failed requests.
//   - Late handlers: a handler added to a running informer is first given every known object by OnAdd with
//     isInInitialList set.
//   - Restating: a handler can be given every known object again while the informer runs, between the changes
//     ([Informer.Restate]).
//
// The index is client-go's cache.Indexer, with the indices that the caller adds.
package informer
