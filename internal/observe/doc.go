// Package observe shows how an engine does: its status, its metrics, and how much longer the outage of a sink may last
// before something is lost. It only reads from the other parts, and never waits for a handler, a destination or a
// commit.
package observe
