// Package tracker tracks, for each source and each sink, what is settled, and commits it, so that a restart continues
// where the previous process stopped.
//
// A *source* is what one informer watches. The [Tracker] holds one [ledger.Ledger] for each source, in memory, and one
// [Store]. It is the [informer.State] of the informers, which note each change in the record of their source
// before any handler is given the change; sinks report with [Tracker.Settle] what they have settled. Once a second, or
// earlier if the ledgers hold much, the Tracker writes what all ledgers allow, in one transaction. It holds no lock
// meanwhile.
//
// The life of a source:
//
//  1. [Tracker.Resume] reads what the store holds of the source and opens its ledger. A source that has no rows begins
//     with a list: its [informer.Record] stores the whole list before any of it is sent to a sink.
//  2. [Tracker.Known] returns for each sink up to which position, and by which filters, it knows the source.
//  3. Changes are noted in the record, their events are settled, and commits follow.
//  4. [Tracker.Forget] is called when the source is no longer watched: its rows are removed as soon as every sink has
//     settled all its events.
//
// The package knows neither configuration files nor brokers: filters are strings that it compares and returns.
package tracker
