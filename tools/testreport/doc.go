// Command testreport runs the tests of several modules and reports the results.
//
//	testreport [-first PACKAGE]... [-no-skips [-may-skip REGEXP]] DIRECTORY... -- [go test flags]
//
// In each DIRECTORY it runs "go test -json [flags] ./...", which covers the packages of the same module below it. The
// tests of the first DIRECTORY should be those that mostly wait: the others run at the same time, one directory after
// the other, with the lowest priority. Each PACKAGE is one of the first DIRECTORY that takes long. They start first, in
// their order.
//
// testreport prints one line for each package, the output of failed tests, the slowest tests, the reason of each skip,
// what the failed tests say (without logs), and at the end the totals of all directories:
//
//	N passed, N failed, N skipped
//
// Tests and subtests count as one each. The seeds of a fuzz target count only if they fail. A package that fails
// without a failed test (because it does not build, leaks goroutines or timed out) counts as one failure. A test that
// started but did not end counts as failed.
//
// The exit code is 0 if nothing failed, and 1 otherwise. -no-skips is for machines that have everything the tests
// require: the run fails if a test is skipped, except for reasons that match -may-skip.
package main
