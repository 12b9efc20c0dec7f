// Package engine tracks, for each source and each sink, what is settled, and commits it, so that a restart goes on where
// the process before it stopped.
//
// A *source* is what one informer watches. The [Engine] holds one [checkpoint.Ledger] for each source, in memory, and the
// [checkpoint.Store] on disk. The [Recorder], the first handler of each informer, reports changes to it, and [Engine.Settle] what
// sinks have settled. About once a second it writes what all ledgers allow, in one transaction.
//
// The life of a source:
//
//  1. [Engine.Resume] reads what the store holds of it and opens its ledger. A source that has no rows begins with a list:
//     [Engine.FirstList] stores it as a whole before any of it is handed to a sink.
//  2. [Engine.Known] says for each sink up to where, and by which filters, it knows the source.
//  3. Changes go through the Recorder; their events are settled; commits follow.
//  4. [Engine.Forget], when the source is watched no more: its rows go as soon as no sink has anything of it unsettled.
//
// The package knows neither configuration files nor brokers: filters are texts that it compares and hands back.
package engine
