// Package logtest has the conformance suite that every implementation of [statelog.Log] runs, and a log and a local
// copy in memory, for tests.
package logtest
