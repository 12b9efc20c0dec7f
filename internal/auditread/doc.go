// Package auditread brings the audit events of a journal to sinks. Each sink has a [Reader], which reads while the sink
// delivers, and notes what the sink has settled. [Commit] stores up to where each sink has everything, and then removes
// from the journal what all of them have.
package auditread
