// Package journals records which replicas have an audit journal on a disk that may be lost. If a replica is gone,
// another one finds in the records which audit events are lost, although the disk is gone too.
//
// The records are annotations of one Lease, because the audit policies of API servers leave out Leases. A [Keeper]
// renews the record of its replica, which says since when the journal may have undelivered events. It also finds the
// records that are not renewed any more.
package journals
