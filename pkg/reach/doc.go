// Package reach says when a server that was away can be reached again, and opens connections without waiting for a
// server that is away.
//
// A [Prober] is shared by all that wait: sinks for their brokers, watches for the API server. As long as anyone waits for an
// address it is dialed every [Interval], also while earlier dials have no answer yet (a firewall or an address without
// a host drops packets, and the answer to a packet that was sent in time comes first). The first dial that succeeds
// wakes everyone who waits for that address. While nobody waits there are no goroutines and no connections.
//
// A connection that was accepted says only that something listens: a load balancer listens in front of a server that
// is away, and a broker listens before it is ready. So a caller that Wait returned to and that fails again has to pause before
// it waits again: [Interval] is a good measure.
//
// [Dial] is what the connections themselves are opened with: all addresses of a host at once, each for [Timeout].
package reach
