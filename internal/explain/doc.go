// Package explain describes what becomes of one change of an object, and renders that for people and programs.
//
// It decides nothing: cmd/bridge runs the change through the listener, the filters, the encoder and the sinks of
// `bridge run`, and fills in a [Report] with what they said.
package explain
