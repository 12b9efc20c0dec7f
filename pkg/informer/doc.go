// Package informer turns the list and watch of one resource into an ordered stream of changes. Package fleet runs the
// informers for all watched resources.
//
// An [Informer] watches one resource, in one namespace or in all, through client-go's cache.Reflector, and delivers
// every change to its handlers, which implement client-go's cache.ResourceEventHandler.
//
//   - Identity: an object is identified by its uid. If the informer sees one update in which the uid of a name has
//     changed, the object was deleted and another one was created. The informer then calls OnDelete (final state
//     unknown) and OnAdd.
//   - Order: one goroutine calls the handlers in resourceVersion order. It calls one handler after the other, and
//     reads the next change only when all handlers have returned. For a list, deletions come first and additions
//     follow in resourceVersion order.
//   - Backpressure: a handler that blocks stops the informer from reading the watch, and TCP flow control then slows
//     down the API server. There is no queue between the watch and the handlers. For this reason the informer does not
//     use cache.SharedIndexInformer, which buffers events without limit for each listener.
//   - Unchanged objects: the informer does not call handlers for updates that do not change the resourceVersion, for
//     example after a re-list.
//   - Deletions: OnDelete always receives an *object.Object, never a cache.DeletedFinalStateUnknown. If the deletion
//     itself was missed, the object is the last known state with FinalStateUnknown set.
//   - Selectors: if a watch has a label or field selector, an object that no longer matches is reported as deleted, and
//     an object that matches again is added with the same uid. The API server sends the same event as for a real
//     deletion, with the last matching state and the resourceVersion of the change. So FinalStateUnknown is not set,
//     and the two cases cannot be distinguished. Event ids that are derived from the uid alone repeat when an object
//     stops matching twice.
//   - Completeness: intermediate states can be missing only after a re-list, and every re-list is announced to handlers
//     that implement [Observer]. Final states and deletions are never missing. A list that fails or ends early has no
//     effect.
//   - Malformed documents: a document that is not a watch event ends the watch, and the informer opens the watch again
//     at the same position. If the API server sends a malformed document there again, the informer lists the resource
//     and reports the gap to observers. Both count as failed requests.
//   - Restating: [Informer.Restate] sends every known object to a receiver again while the informer runs, between the
//     changes.
//
// The index is client-go's cache.Store.
package informer
