// Package informer turns list and watch of the API server into ordered changes, and keeps the set of watched
// resources in step with what the cluster serves.
//
// # Informer
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
//   - Completeness: intermediate states can be missing only after a re-list; each one is announced to handlers that
//     are [Observer]s. Final states and deletions are never missing. A list that fails or ends early changes nothing.
//   - Late handlers: a handler added to a running informer is first given every known object by OnAdd with
//     isInInitialList set.
//
// The index is client-go's cache.Indexer, with the indices [ByNamespace] and [ByOwner] and any that the caller adds.
//
// # Set
//
// A [Set] runs the informers that its scopes ask for: it discovers what the cluster serves, starts an informer for
// what appears, and ends it when the resource is gone, which it takes from the API server's word about that one
// resource and never from a discovery document that merely lacks it. Each informer is on its own: one that RBAC
// forbids is reported and retried, and harms no other.
package informer
