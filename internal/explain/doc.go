// Package explain says what becomes of one change of an object, and renders that for people and programs.
//
// It decides nothing: it runs the change through an [engine.Trial], which is the listener, the filters and the encoder of `bridge run`, asks the
// destinations where the message would go, and fills in a [Report] with what they said.
package explain
