// Package election decides which of several processes leads. The leader is the process that holds a Lease
// (coordination.k8s.io/v1). [Candidate.Lead] waits for the Lease, and then calls the caller's function with a [Term].
// The package runs client-go's leader election, and changes what does not suit a process that continues to run after it
// has lost the Lease, and whose work takes a while to stop.
//
// # When a term ends
//
// The Lease is renewed until the caller's function has returned, even after the context of Lead has ended. Only then is
// it released. If the Lease is lost before, the term's context ends, the Lease is not renewed anymore, and Lead waits
// for the function to return before it tries to become the leader again. The Lease is lost when
//
//   - it was not renewed for Config.RenewDeadline, because the API server is unavailable or rejects requests;
//   - another process holds it, or has released it since;
//   - it was deleted.
//
// A lost term is never continued, even if no other process has taken the Lease in the meantime.
//
// # Guarantees
//
// [Term.Valid] returns false before another process can take the Lease because it has expired or was deleted. It does
// not depend on timers or goroutines, so it is also correct right after the process was stopped with SIGSTOP and
// continued. It compares times of the monotonic clock, and assumes that the clocks of two machines run at the same
// speed. A machine whose monotonic clock does not count the time in which the machine was suspended breaks this
// assumption.
//
// No lease can prevent a request that was sent while the term was valid from arriving later. A destination that can
// fence must do so.
//
// If the Lease is deleted, the leader learns this when it renews the Lease the next time, or does not learn it if it
// cannot reach the API server. A candidate that has seen another process hold the Lease therefore waits for
// Config.LeaseDuration before it creates the Lease. The previous leader does not wait. A process that starts after the
// deletion does not know of it and creates the Lease at once, so do not delete the Lease unless the leader has ended.
//
// # How fast another process takes over
//
// A candidate watches the Lease, so it notices within milliseconds that the Lease was released. It notices
// that the Lease has expired when it polls the Lease, at most 2.2 times Config.RetryPeriod later. If the watch fails,
// or the right to watch is missing, it notices everything by polling.
//
// # Rights
//
// A candidate requires the verbs get and update for the Lease, and create for leases in its namespace, because rules
// for create cannot name an object. It should also be allowed to watch the Lease.
package election
