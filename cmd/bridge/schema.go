package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/spf13/cobra"
)

// avroSchema is the name of the Avro schema of events. The other names are those of JSON Schemas.
const avroSchema = "avro"

func newSchemaCommand(stdout io.Writer) *cobra.Command {
	names := append(schemas.Names(), avroSchema)
	event, list := "", strings.Join(names, ", ")
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration or of events",
		Long: "schema prints the JSON Schema (draft-07) of the configuration, for editors and for values.schema.json of\n" +
			"a chart.\n\n" +
			"For the YAML language server, save it to a file and start the configuration with this line:\n" +
			"# yaml-language-server: $schema=bridge.schema.json\n\n" +
			"With --event it prints a schema (2020-12) of events: cloudevent is an event in structured content mode;\n" +
			"avro is the Avro schema of events; the others describe the data of an event with one of the payloads, or\n" +
			"of an audit, gap, synced or progress event.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := config.Schema()
			if event == avroSchema {
				text = schemas.Avro()
			} else if cmd.Flags().Changed("event") {
				var ok bool
				if text, ok = schemas.Get(event); !ok {
					return usageError(fmt.Errorf("--event %s: must be one of %s", event, list))
				}
			}
			_, err := io.WriteString(stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&event, "event", "", "`name` of the event schema to print: "+list)
	completeWords(cmd, "event", names...)
	return cmd
}
