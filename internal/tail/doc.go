// Package tail prints the events of a stream for a terminal: one line for each event, as wide as the terminal, and
// optionally what each update changed.
//
// [Printer.Print] must be called with the records in order, and writes each one immediately. Control characters in a
// record are escaped. With Options.Diff the Printer remembers the last state of each object, up to a limit; otherwise
// it remembers nothing.
package tail
