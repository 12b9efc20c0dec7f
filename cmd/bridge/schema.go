package main

import (
	"io"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/spf13/cobra"
)

func newSchemaCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration",
		Long: "schema prints the JSON Schema (draft-07) of the configuration: for editors, and for values.schema.json of a chart.\n\n" +
			"For the YAML language server: save it, and begin the configuration with\n" +
			"# yaml-language-server: $schema=bridge.schema.json",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(stdout, config.Schema())
			return err
		},
	}
}
