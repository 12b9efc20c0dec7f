// Command testreport runs the tests of several modules and says truthfully what became of them.
//
//	testreport [-no-skips [-may-skip REGEXP]] FOLDER... -- [go test flags]
//
// In each FOLDER it runs "go test -json [flags] ./...", which covers the packages below that belong to the same
// module. It prints one line for each package, the output of what failed, the slowest tests, the reason of each skip, and
// at the end, over all folders,
//
//	N passed, N failed, N skipped
//
// Tests and subtests count one each; the seeds of a fuzz target count only if they fail. A package that fails
// without a failed test (it does not build, it leaks goroutines, it ran out of time) counts as one failure, and a
// test that began and never ended has failed.
//
// The exit code is 0 if nothing failed, and 1 otherwise. With -no-skips a skipped test is a failure of the run:
// for machines that are known to have all that the tests need. A test that says why it does not apply, whatever the
// machine has, may be let through by its reason.
package main
