// Package event defines the events that flow from the informers to the sinks. An event contains the change and its
// object, and has a deterministic id and a CloudEvents 1.0 form.
//
// # Identity
//
// An event's id depends only on the change. The same change therefore has the same id after restarts and re-lists, and
// in all replicas:
//
//   - <uid>.<resourceVersion> identifies a state of an object (added, updated and restated events; re-sending a state
//     does not change its id).
//   - <uid>.deleted identifies the deletion of an object, whether the deletion was observed or inferred from a list.
//   - <uid>.<resourceVersion>.deleted identifies a deletion if the source has a labelSelector or fieldSelector. Such a
//     deletion can also mean that the object is no longer selected, and can happen more than once.
//   - <uid>.<resourceVersion>.left identifies a leave: the object stopped passing a sink's filter. The resourceVersion
//     is that of the state that does not pass. The id always differs from the id of the actual deletion, which
//     may follow.
//   - If a changed filter or a changed `watch` configuration causes an addition or a leave, the id ends in
//     .filter.<change>. If an object passes the filter again, the id of its event therefore differs from the
//     ids of earlier events. <change> stays the same after restarts.
//   - <auditID>.<stage>.<time> identifies an audit event: see audit.Event.ID.
//   - gap.…, synced.… and progress.… identify control events. They contain the cluster, the resource and
//     resourceVersions. The id of a synced event also contains the namespace if the list was limited to one namespace.
//     At the end of a resync, it also contains the time at which the resync began. The id of a progress event also
//     contains its time.
//
// # Ownership
//
// The listener of one sink creates an Event and encodes it immediately. The resulting Message is immutable. Its Data
// can share memory with the informer's index and with other sinks, so nothing may write to Data.
//
// # Order
//
// Two messages with equal [Message.Key] must reach the destination in the order in which they were encoded. Messages
// with different keys have no guaranteed order.
package event
