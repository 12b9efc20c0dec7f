//go:build !race

package e2e

// raceDetector says whether the tests, and thus the bridge, have the race detector.
const raceDetector = false
