// Package reload loads a changed configuration while the bridge runs (ADR 35). It decides when a changed file is used;
// [engine.Engine] and the caller do the rest.
//
// A [Reloader] has one configuration in use, and at most one that it has accepted and that is not in use yet. It
// examines the file every few seconds, at a signal, and when it is asked to:
//
//   - The file is refused if it cannot be read, has a mistake or changes what cannot change, if its parts cannot be
//     built, or if events wait for sinks that it does not have. Nothing changes then, and what was accepted is dropped.
//     The status, the metrics and the log have the reason, until the file is accepted or has the configuration in use.
//   - If the file has the configuration in use, nothing happens, and what was accepted is dropped.
//   - Otherwise, it is accepted. Without an engine, as on a standby, it is in use at once. [Reloader.RunEngines]
//     replaces an engine first.
//
// An engine is replaced when all of this is true:
//
//   - It can end in good order (CanEnd).
//   - No events are stuck for sinks that are removed. If events of these sinks are left when the engine has ended, the
//     next engine has the earlier configuration, and the file is refused.
//   - With a state log, all other replicas that answer have the accepted configuration, or two minutes are over. So a
//     replica that takes over never has an earlier configuration than the last leader. The log also has everything that
//     this process has, so that the replica knows which filters the sinks had before.
//
// The state log names a configuration that is in use ([Copy]) before the next engine starts.
package reload
