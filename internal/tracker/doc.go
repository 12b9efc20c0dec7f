// Package tracker tracks, for each source and each sink, what is settled, and commits it, so that a restart goes on
// where the process before it stopped.
//
// A *source* is what one informer watches. The [Tracker] holds one [ledger.Ledger] for each source, in memory, and a
// [Store] behind them, which is a checkpoint's file ([FileStore]). It is the [informer.State] of the informers, which
// note each change in the record of their source before any handler is given it; [Tracker.Settle] says what sinks
// have settled. Once a second, or earlier if the ledgers hold much, it writes what all ledgers allow, in one
// transaction. No lock is held meanwhile.
//
// The life of a source:
//
//  1. [Tracker.Resume] reads what the store holds of it and opens its ledger. A source that has no rows begins with a list:
//     its [informer.Record] stores it as a whole before any of it is handed to a sink.
//  2. [Tracker.Known] says for each sink up to where, and by which filters, it knows the source.
//  3. Changes are noted in the record; their events are settled; commits follow.
//  4. [Tracker.Forget], when the source is watched no more: its rows go as soon as no sink has anything of it unsettled.
//
// The package knows neither configuration files nor brokers: filters are texts that it compares and hands back.
package tracker
