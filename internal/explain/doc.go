// Package explain reports what the bridge would do with one change of an object, as a table or as JSON.
//
// It makes no decisions of its own. It runs the change through an [engine.Trial], which uses the listener, the filters
// and the encoder of `bridge run`, asks the destinations where the message would go, and collects the answers in a
// [Report].
package explain
