package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"
)

func main() {
	// A signal interrupts the go command, which interrupts its tests, so that they stop their servers.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// run runs the tests that args select. It returns an error unless all of them passed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(stderr)
	noSkips := flags.Bool("no-skips", false, "a skipped test fails the run")
	var first []string
	flags.Func(
		"first",
		"`PACKAGE` of the first directory that starts before the others; may be repeated",
		func(p string) error {
			first = append(first, p)
			return nil
		},
	)
	maySkip := flags.String("may-skip", "", "`REGEXP` of reasons for which tests may be skipped despite -no-skips")
	ours, goFlags := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		ours, goFlags = args[:i], args[i+1:]
	}
	if err := flags.Parse(ours); err != nil {
		return err
	}
	allowed, err := regexp.Compile(*maySkip)
	if err != nil {
		return fmt.Errorf("-may-skip: %w", err)
	}
	dirs := flags.Args()
	if len(dirs) == 0 {
		return errors.New("no directory given")
	}

	r := newReport(stdout)
	defer r.summary() // print it even if the run was interrupted
	tests := func(packages ...string) []string {
		return slices.Concat([]string{"go", "test", "-json"}, goFlags, packages)
	}
	var group errgroup.Group
	group.Go(func() error {
		// go starts packages in the order in which they are named
		return r.runDirectory(ctx, dirs[0], tests(append(first, "./...")...), stderr)
	})
	group.Go(func() error {
		for _, dir := range dirs[1:] {
			if err := r.runDirectory(ctx, dir, append([]string{"nice", "-n", "19"}, tests("./...")...), stderr); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	switch {
	case r.failed > 0:
		return errors.New("tests failed")
	case r.passed == 0:
		return errors.New("no test ran")
	case *noSkips && slices.ContainsFunc(r.skips, func(s skip) bool {
		return *maySkip == "" || !allowed.MatchString(s.reason)
	}):
		return errors.New("tests were skipped, which -no-skips does not allow")
	}
	return nil
}

// runDirectory runs a command in dir, counts the tests, and returns an error if they could not be run.
func (r *report) runDirectory(ctx context.Context, dir string, command []string, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := r.read(out)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case readErr != nil:
		return fmt.Errorf("output of go test in %s: %w", dir, readErr)
	case err != nil && !r.hasFailed():
		return fmt.Errorf("go test in %s: %w", dir, err) // the error is not that of a package
	}
	return nil
}
