package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/doctor"
)

func newDoctorCommand(stdout io.Writer) *cobra.Command {
	var skipState bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that `bridge run` requires, without changing anything",
		Long: "doctor checks the API server, the state directory and each destination, step by step. It prints what it\n" +
			"found, with a remedy for each problem, and exits with 1 if a step failed. Warnings are not failures.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.Flags().BoolVar(&skipState, "skip-state", false,
		"do not check the state directory, because the bridge uses another one than this machine has")
	out := newOutput(cmd, stdout, formatTable, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := file.load()
		if err != nil {
			return err
		}
		if skipState {
			cfg.State.Path = ""
		}
		report, err := doctor.Examine(cmd.Context(), cfg, version)
		if err != nil {
			return err
		}
		if cmd.Context().Err() != nil {
			return errors.New("interrupted")
		}
		err = out.print(report)
		if err == nil && report.Failed > 0 {
			err = fmt.Errorf("%d of %d steps failed", report.Failed, len(report.Findings))
		}
		return err
	}
	return cmd
}
