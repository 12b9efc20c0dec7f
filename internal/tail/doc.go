// Package tail prints the events of a stream to a terminal. Every event is one line that fits the width of the
// terminal. Optionally, the changes in each update follow.
//
// [Printer.Print] must be called with the records in order. It writes each record immediately. Control characters in
// records are escaped. If Options.Diff is set, the Printer keeps the last states of a limited number of objects.
// Otherwise it keeps no states.
package tail
