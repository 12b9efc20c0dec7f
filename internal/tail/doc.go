// Package tail shows the events of a stream to a person: one line for each, as wide as the terminal, and on request what
// each update changed.
//
// It is given records in their order ([Printer.Print]) and writes each at once. Nothing that a record holds can steer the
// terminal. With Options.Diff it remembers the last state of each object, up to a bound; without, nothing.
package tail
