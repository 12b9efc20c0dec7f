// Package actors finds out who made the changes that informers deliver: a [Finder] joins them with the audit events of
// a journal (pkg/audit/actor). An [Asker] asks it about the changes of an informer, once for all sinks, and each change
// has a [Question], which is answered later.
package actors
