// Package audit receives audit events from API servers (audit.k8s.io/v1, the audit webhook backend), and stores them on
// the local disk until they are delivered.
//
// A [Server] serves a [Handler], which checks requests and appends their events to a [Journal]. Nothing here depends on
// a broker: a request is answered when its events are on the disk.
//
// # Guarantees
//
// An event for which an API server got the status 200 is in the journal, after a crash at any time, until it is
// acknowledged (Journal.Ack). Nothing of a request that got another status is required to be there, although it may be
// if the connection or the process ended before the response. API servers then send the request again, so events are
// delivered at least once. Event.ID is the same for each copy. API servers send several requests at the same time, so
// the order of events in the journal is not the order in which they happened.
//
// # Numbers, positions, and what a reader must store
//
// Events have consecutive numbers in the journal. A reader, such as a sink, stores the number up to which it has
// delivered, together with [Journal.ID], as a [Position]. The identity of the journal is random, stored in its
// directory, and changes whenever numbers could have another meaning than before. After a restart:
//
//  1. The caller passes all stored positions to [OpenJournal] (JournalOptions.Known). If the journal ends before one of
//     them, its directory was replaced with an older copy. New events would get numbers that a reader counts as
//     delivered, so the journal gets a new identity. To notice this even if the readers are behind, the caller also
//     stores the number of the last event (Journal.Status) now and then, such as with each commit of its checkpoint.
//  2. Each reader passes its position to [Journal.Resume], which returns the number to continue from, and an error if
//     events may be missing before it. The reader must then announce a gap. This is the case if the journal has another
//     identity, because its disk was lost or replaced or its state was damaged and it was quarantined, and if events
//     were acknowledged that the reader has not delivered.
//
// A reader stores its first position before it has delivered anything, and its new one when it has announced a gap: the
// number before the one that Resume returned. Otherwise nobody would notice that the disk was lost, or the gap would be
// announced again after the next restart.
//
// The caller acknowledges the lowest number that all readers have delivered and stored. If a part of the journal is
// damaged, Read returns the numbers of the lost events, and the reader announces a gap in their place.
//
// # Full or failing disk
//
// Append fails if the journal is full (ErrFull) or the disk cannot be written, and works again when there is room.
// Events that were appended before stay. API servers retry, and drop events only after all attempts.
//
// # What API servers do with a status
//
// The webhook backend (k8s.io/apiserver/plugin/pkg/audit/webhook) retries after every error, including each 4xx: five
// attempts, with 10 s (--audit-webhook-initial-backoff) before the second, and 1.5 times as long before each further
// one, so a batch is dropped after about 80 s. In addition, its HTTP client repeats a request within one attempt if the
// status is 429 or 5xx and has a Retry-After: up to ten times, for at most 30 s. Therefore these responses have a
// Retry-After: delivery continues within seconds, and a batch is kept for longer. A 4xx has none, because repeating the
// same request cannot help unless an operator corrects something.
package audit
