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
)

func main() {
	// On a signal the go command is asked to end, which passes it on to its tests: they stop their servers.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// run runs the tests as args say. It returns an error unless everything passed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(stderr)
	noSkips := flags.Bool("no-skips", false, "a skipped test fails the run")
	maySkip := flags.String("may-skip", "", "with -no-skips: `REGEXP` of reasons for which a test may be skipped all the same")
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
	folders := flags.Args()
	if len(folders) == 0 {
		return errors.New("no folder given")
	}

	r := newReport(stdout)
	defer r.summary() // what is known counts, even if the run was broken off
	for _, folder := range folders {
		if err := r.folder(ctx, folder, goFlags, stderr); err != nil {
			return err
		}
	}
	switch {
	case r.failed > 0:
		return errors.New("tests failed")
	case r.passed == 0:
		return errors.New("no test ran")
	case *noSkips && slices.ContainsFunc(r.skips, func(s skip) bool { return *maySkip == "" || !allowed.MatchString(s.reason) }):
		return errors.New("tests were skipped, and this machine is expected to run them all")
	}
	return nil
}

// folder runs the tests in and below dir and counts them. An error means that they could not be run.
func (r *report) folder(ctx context.Context, dir string, goFlags []string, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json"}, goFlags, []string{"./..."})...)
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
	before := r.failed
	readErr := r.read(out)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case readErr != nil:
		return fmt.Errorf("output of go test in %s: %w", dir, readErr)
	case err != nil && r.failed == before:
		return fmt.Errorf("go test in %s: %w", dir, err) // it said nothing of any package
	}
	return nil
}
