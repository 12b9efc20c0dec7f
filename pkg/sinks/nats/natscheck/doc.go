// Package natscheck compares a JetStream stream, and the servers on the way to it, with what the bridge promises: for
// the sink when it connects, and for the commands that diagnose. It changes nothing.
package natscheck
