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
)

// The build sets these variables (-ldflags -X).
var (
	version = "dev"
	commit  = "unknown"
	date    = "unknown"
)

func main() {
	ctx := untilSignal(context.Background())
	klog.SetLogger(logr.Discard()) // commands return errors; `bridge run` sets its own logger
	if err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bridge:", err)
		if known, ok := errors.AsType[*exitError](err); ok {
			os.Exit(known.code)
		}
		os.Exit(1)
	}
}

// exitError is an error with its own exit code. For all other errors, the process exits with code 1.
type exitError struct {
	error
	code int
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "bridge",
		Short: "Stream every change of a Kubernetes cluster to NATS JetStream and Apache Kafka",
		Long: "bridge watches the resources of a Kubernetes cluster and sends each change, in order for each object, as\n" +
			"a CloudEvent to NATS JetStream and Apache Kafka.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newRunCommand(stdout, stderr), newCheckCommand(stdout), newSchemaCommand(stdout), newRBACCommand(stdout),
		newDoctorCommand(stdout), newExplainCommand(stdout), newTailCommand(stdout, stderr),
		newDeadLettersCommand(stdout, stderr), newResyncCommand(stdout), newPauseCommand(stdout), newResumeCommand(stdout),
		newClaimCommand(stdout), newVersionCommand(stdout),
	)
	return root
}

func newVersionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(stdout, "bridge %s (commit %s, built %s, %s %s/%s)\n",
				version, commit, date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
