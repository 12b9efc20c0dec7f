// Package explain reports how the bridge would handle one change to an object, as a table or as JSON.
//
// The package does not decide anything itself. It passes the change through an [engine.Trial], which uses the listener,
// the filters and the encoder of `bridge run`. Then it asks the destinations where they would store the message. A
// [Report] contains the results.
package explain
