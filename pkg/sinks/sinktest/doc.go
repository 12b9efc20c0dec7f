// Package sinktest is a test suite that every sink must pass.
//
// A sink's package describes its destination in a Harness and calls Run in one of its tests. The suite tests the
// contract of sinks.Sink as a black box. It sends messages through the sink, with or without a sinks.Drain, and
// compares them with the messages that an independent client reads from the destination. The suite contains no code for
// particular brokers.
//
// The interfaces Stopper, Freezer, Divider, Separator, Sequencer and Observer are optional, because some destinations
// can't implement them.
// For example, stdout has no server that could be stopped. The tests that require a missing interface are skipped with
// a reason.
//
// Proxy is a TCP proxy that can be frozen. A frozen Proxy accepts connections but forwards nothing, so it behaves like
// a hanging broker.
package sinktest
