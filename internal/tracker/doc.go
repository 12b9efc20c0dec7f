// Package tracker records, for every source and every sink, which events are settled. It commits this progress, so a
// restart continues where the previous process stopped.
//
// A *source* is the set of objects that one informer watches. The [Tracker] has one [ledger.Ledger] per source, in
// memory, and one [Store]. It implements [informer.State]: an informer records every change in the [informer.Record] of
// its source before it calls any handler. Sinks call [Tracker.Settle] for every event that they have settled. Once a
// second, or earlier if the ledgers hold much data, the Tracker commits the settled part of all ledgers in one
// transaction. It holds no lock during the commit.
//
// [Tracker.Identify] checks at the start that the store belongs to this cluster, stores the current filters and `watch`,
// and reads the states of all sources, without their rows. The life of a source then has these steps:
//
//  1. [Tracker.Resume] loads the source from the store and opens its ledger. A source that has no watermark begins
//     with a list: its [informer.Record] stores the whole list before any object is sent to a sink.
//  2. [Tracker.Known] returns, for a sink, the position up to which the sink knows the source,
//     and the filters that applied.
//  3. The informer records changes, sinks settle the events of these changes, and the Tracker commits both.
//  4. [Tracker.Forget] is called when the source is no longer watched: its rows are removed as soon as every sink has
//     settled all its events.
//
// [Tracker.Bookmark] stores the positions of a sink in its destination, from which the next process reads back what was
// sent. A position is stored as soon as a restart would not bring any event again that was sent before it.
//
// A filter can also change while the process runs ([Tracker.ChangeFilter]).
//
// The package does not depend on configuration files or brokers. A filter is a string that the package compares and
// returns.
package tracker
