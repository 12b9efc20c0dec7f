package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/deltabridge/deltabridge/internal/console"
)

// The build sets these variables (-ldflags -X).
var (
	version = "dev"
	commit  = "unknown"
	date    = "unknown"
)

func main() {
	klog.SetLogger(logr.Discard()) // commands return errors; `bridge run` sets its own logger
	err := execute(untilSignal(context.Background()), newCommand(os.Stdout, os.Stderr))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bridge:", err)
	}
	os.Exit(exitCode(err))
}

// The exit codes of all commands. docs/commands.md has the same table.
const (
	exitOK     = 0
	exitFailed = 1  // every other error
	exitPartly = 2  // a part of the work was not done
	exitUsage  = 64 // EX_USAGE of sysexits.h: the command line is wrong
	exitConfig = 78 // EX_CONFIG: the configuration is missing or invalid, or does not fit the state directory
)

// exitError is an error with its own exit code.
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

// usageError returns err with the exit code for a wrong command line. It returns nil if err is nil.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{err, exitUsage}
}

func exitCode(err error) int {
	known, ok := errors.AsType[*exitError](err)
	switch {
	case err == nil:
		return exitOK
	case ok:
		return known.code
	}
	return exitFailed
}

// execute runs the command line. Everything that fails before the command itself starts is a usage error.
func execute(ctx context.Context, root *cobra.Command) error {
	started := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := cmd.ValidateFlagGroups() // cobra repeats this later
		started = err == nil
		return err
	}
	err := root.ExecuteContext(ctx)
	if !started {
		err = usageError(err)
	}
	return err
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "bridge",
		Short: "Stream every change of a Kubernetes cluster to NATS JetStream and Apache Kafka",
		Long: "bridge watches the resources of a Kubernetes cluster and sends each change, in order for each object, as\n" +
			"a CloudEvent to NATS JetStream and Apache Kafka.\n\n" +
			"Commands read the configuration file in --config. Without this flag, they read the file that the\n" +
			"environment variable DELTABRIDGE_CONFIG names, or else ./bridge.yaml.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(
		newRunCommand(stdout, stderr), newCheckCommand(stdout), newTestCommand(stdout), newSchemaCommand(stdout),
		newRBACCommand(stdout), newDoctorCommand(stdout),
		newExplainCommand(stdout), newTailCommand(stdout, stderr), newStatusCommand(stdout),
		newResyncCommand(stdout), newPauseCommand(stdout),
		newResumeCommand(stdout), newReloadCommand(stdout), newClaimCommand(stdout), newVersionCommand(stdout),
	)
	return root
}

// build describes the binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (b *build) WriteTable(w io.Writer, _ console.Style) error {
	_, err := fmt.Fprintf(w, "bridge %s (commit %s, built %s, %s %s)\n", b.Version, b.Commit, b.Date, b.Go, b.Platform)
	return err
}

func newVersionCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
	}
	out := newOutput(cmd, stdout, formatText, formatJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		return out.print(&build{version, commit, date, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
	}
	return cmd
}
