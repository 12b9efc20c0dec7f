package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/doctor"
)

func newDoctorCommand(stdout io.Writer) *cobra.Command {
	var path, output string
	var skipState bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that `bridge run` requires, without changing anything",
		Long: "doctor checks the API server, the state directory, the machine and each destination, step by step. It\n" +
			"prints what it found, with a remedy for each problem, and exits with 1 if a step failed. Warnings are\n" +
			"not failures.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			cfg, err := loadConfig(path)
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
			err = printReport(stdout, report, output)
			if err == nil && report.Failed > 0 {
				err = fmt.Errorf("%d of %d steps failed", report.Failed, len(report.Findings))
			}
			return err
		},
	}
	configFlag(cmd.Flags(), &path)
	cmd.Flags().BoolVar(&skipState, "skip-state", false,
		"do not check the state directory, because the bridge uses another one than this machine has")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`format` of the report: table or json")
	return cmd
}
