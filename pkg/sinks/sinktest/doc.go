// Package sinktest is what every sink must do, as tests.
//
// A sink's package describes its destination in a Harness and calls Run from one of its tests. The suite then
// checks the contract of sinks.Sink from outside: it sends through the sink, alone or under a sinks.Drain, and
// compares with what an independent client reads back from the destination. It knows no broker.
//
// What a destination can't do (stdout has no server that could be stopped), it leaves out: the interfaces
// Stopper and Freezer are optional, and the tests that need them are then skipped with that reason.
//
// Proxy is a TCP proxy that can freeze: it accepts connections and passes nothing on, which is how a hanging
// broker looks from outside.
package sinktest
