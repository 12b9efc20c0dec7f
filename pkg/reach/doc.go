// Package reach detects when an unavailable server can be reached again, and opens connections without spending long on
// addresses that do not answer.
//
// All waiting callers share one [Prober]: sinks that wait for their brokers, and watches that wait for the API server.
// While at least one caller waits for an address, the Prober dials it every [Interval], even if earlier dials have no
// answer yet: if packets were dropped, a new dial succeeds sooner than TCP's retransmission would. The first successful
// dial wakes all callers that wait for the address. While nobody waits, the Prober has no goroutines and no
// connections.
//
// An accepted connection proves only that something listens: a load balancer listens even if no server is behind it,
// and a broker listens before it is ready. A caller whose request fails after Wait has returned must therefore pause,
// for about [Interval], before it calls Wait again.
//
// [Dial] opens the connections themselves: it dials all addresses of a host at once, each for at most [Timeout].
package reach
