// Package evaluate determines what each sink would be sent about changes of objects, and why: for an object of the
// cluster or in a file (`bridge explain`), and for the changes in test files (`bridge test`). It sends nothing.
//
// The package decides nothing itself. It does what an API server does: it keeps objects, numbers their states, and
// evaluates the selectors of each watch. The informers, filters and encoders of `bridge run` do the rest
// ([engine.Rehearsal]), and the destinations report where they would store each message ([diagnose.Previewer]).
//
// Nothing in a test depends on time, chance or the environment: each event has the same time, fingerprints of secret
// values have a fixed key, and the uid and resourceVersion of an object depend only on the test.
package evaluate
