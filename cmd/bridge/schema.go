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
		Short: "Print the JSON Schema of the configuration or of events",
		Long: "schema prints the JSON Schema (draft-07) of the configuration, for editors and for values.schema.json of\n" +
			"a chart.\n\n" +
			"For the YAML language server, save it to a file and start the configuration with this line:\n" +
			"# yaml-language-server: $schema=bridge.schema.json\n\n" +
			"With --event it prints a schema (2020-12) of events: cloudevent is an event in structured content mode;\n" +
			"the others describe the data of an event with the payload object, change or metadata, or of a gap or\n" +
			"synced event.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := config.Schema()
			if cmd.Flags().Changed("event") {
				var ok bool
				if text, ok = schemas.Get(event); !ok {
					return usageError(fmt.Errorf("--event %s: must be one of %s", event, names))
				}
			}
			_, err := io.WriteString(stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&event, "event", "", "`name` of the event schema to print: "+names)
	completeWords(cmd, "event", schemas.Names()...)
	return cmd
}
