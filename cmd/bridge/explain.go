package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/explain"
)

func newExplainCommand(stdout io.Writer) *cobra.Command {
	o := explain.Options{Version: version}
	var path, output string
	cmd := &cobra.Command{
		Use:   "explain (FILE | RESOURCE [NAMESPACE/]NAME)",
		Short: "Show what each sink would send for an object, and why",
		Long: "explain takes an object from a file (YAML or JSON; - is standard input) or from the cluster of the\n" +
			"kubeconfig. It shows which entry of `watch` covers the object, which filters of each sink it passes, and\n" +
			"which message each sink would send: id, subject or topic, key and partition, headers, and size compared\n" +
			"with the limit of the destination.\n\n" +
			"It runs the same code as `bridge run`, but sends nothing and changes nothing. For an object from a file,\n" +
			"it asks the API server which resource the object belongs to. It asks the destinations for their\n" +
			"partitions and limits. With --offline it asks neither.",
		Example: "  bridge explain -c bridge.yaml web.yaml\n" +
			"  bridge explain -c bridge.yaml pods default/web\n" +
			"  bridge explain -c bridge.yaml deployments.apps shop/web --operation deleted\n" +
			"  bridge explain -c bridge.yaml now.yaml --old before.yaml -o json",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			reports, err := o.Reports(cmd.Context(), cfg, args, cmd.InOrStdin())
			for n, r := range reports {
				if n > 0 && output == "table" {
					_, _ = fmt.Fprintln(stdout) // if this write fails, the next write returns the error
				}
				if err := printReport(stdout, r, output); err != nil {
					return err
				}
			}
			return err
		},
	}
	flags := cmd.Flags()
	configFlag(flags, &path)
	flags.StringVar(&o.Old, "old", "", "`file` with the previous state, for an update")
	flags.StringVar(&o.Operation, "operation", "",
		"added, updated, deleted or restated (default: updated with --old, otherwise added)")
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the object, if the file or the name has none")
	flags.StringVar(&o.Resource, "resource", "",
		"`resource` of the object in the file, for example deployments.apps (default: ask the API server)")
	flags.BoolVar(&o.Offline, "offline", false, "query neither the API server nor the destinations")
	flags.StringVarP(&output, "output", "o", "table", "`format`: table or json")
	return cmd
}
