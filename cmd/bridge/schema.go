package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/spf13/cobra"
)

func newSchemaCommand(stdout io.Writer) *cobra.Command {
	event, names := "", strings.Join(schemas.Names(), ", ")
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, or of what is sent",
		Long: "schema prints the JSON Schema (draft-07) of the configuration: for editors, and for values.schema.json of a chart.\n\n" +
			"For the YAML language server: save it, and begin the configuration with\n" +
			"# yaml-language-server: $schema=bridge.schema.json\n\n" +
			"With --event it prints that (2020-12) of what is sent: cloudevent is an event in the structured content mode,\n" +
			"the others are data: of the payloads object, change and metadata, and of the events gap and synced.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := config.Schema()
			if cmd.Flags().Changed("event") {
				var ok bool
				if text, ok = schemas.Get(event); !ok {
					return fmt.Errorf("--event %s: want %s", event, names)
				}
			}
			_, err := io.WriteString(stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&event, "event", "", "print the schema of what is sent, by `name`: "+names)
	return cmd
}
