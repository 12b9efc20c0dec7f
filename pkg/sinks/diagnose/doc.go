// Package diagnose defines the interfaces that `bridge doctor`, `bridge explain`, `bridge test` and `bridge tail` require
// of a sink. A broker's package implements them in addition to [sinks.Sink], as far as possible.
//
// None of the methods changes the destination or disturbs a bridge that writes to it.
package diagnose
