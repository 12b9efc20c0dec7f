// Package diagnose is what `bridge doctor`, `bridge explain` and `bridge tail` ask of a sink, beside what delivery
// needs: a broker's package implements these interfaces in addition to [sinks.Sink], as far as it can.
//
// Nothing here changes the destination or disturbs a bridge that writes to it.
package diagnose
