//go:build race

package e2e

// The binary is built like the tests: with the race detector if they have it.
var raceFlag = []string{"-race"}
