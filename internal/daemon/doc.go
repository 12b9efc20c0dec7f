// Package daemon is the process of `bridge run`: it runs engines, one after another, as the only process or as one of
// several replicas, serves HTTP and the control socket, and accepts audit events.
//
//	daemon.go    Run: builds what the engines have in common, and runs alone
//	replica.go   runs as a replica: an engine in each term
//	engines.go   builds engines, for the configuration in use
//	intake.go    accepts audit events for the engine of a single process
//	auditing.go  accepts and delivers audit events as one of several replicas
//	http.go      the HTTP server
//	refused.go   waits until the configuration is accepted
//	printer.go   prints events
package daemon
