//go:build !race

package e2e

var raceFlag []string
