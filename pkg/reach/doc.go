// Package reach detects when an unavailable server can be reached again, and opens connections without spending long on
// addresses that do not answer.
//
// All waiting callers share one [Prober]: sinks that wait for their brokers, and watches that wait for the API server.
// While at least one caller waits for an address, the Prober dials the address every [Interval], even if earlier dials
// have not ended yet. If packets were dropped, a new dial succeeds sooner than TCP's retransmission. The first
// successful dial wakes all callers that wait for the address. While no caller waits, the Prober has no goroutines and
// no connections.
//
// An accepted connection proves only that something listens. A load balancer listens even if no server is behind it,
// and a broker listens before it is ready. If a request fails after Wait has returned, the caller must therefore pause
// for about [Interval] before it calls Wait again.
//
// [Dial] opens connections for requests. It dials all addresses of a host concurrently, each for at most [Timeout].
package reach
