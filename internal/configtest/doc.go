// Package configtest runs tests of a configuration: files with changes of objects as input, and with the events that
// each sink must be sent as output. It requires neither a cluster nor a broker.
//
// The package decides nothing itself. It does what an API server does: it keeps the objects of a test, numbers their
// states, and evaluates the selectors of each watch. The informers, filters and encoders of `bridge run` do the rest
// ([engine.Rehearsal]), and the destinations report where they would store each message ([diagnose.Previewer]).
//
// Nothing depends on time, chance or the environment: each event has the same time, fingerprints of secret values
// have a fixed key, and objects that lack a uid or a resourceVersion are given one that depends only on the test.
package configtest
