// Package scale says how large the tests' scenarios are. `make test` runs each scenario with few repetitions and short
// durations; `make test-long` runs it with the counts and durations that the documentation and the issues name.
package scale

import "os"

// Variable is the environment variable that selects the large scenarios; `make test-long` sets it.
const Variable = "DELTABRIDGE_TEST_LONG"

// Long reports whether the scenarios run with their full counts and durations.
func Long() bool { return os.Getenv(Variable) != "" }

// Of returns short in `make test`, and long in `make test-long`.
func Of[T any](short, long T) T {
	if Long() {
		return long
	}
	return short
}
