package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/evaluate"
	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

func newExplainCommand(stdout io.Writer) *cobra.Command {
	o := evaluate.ExplainOptions{Version: version}
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
	}
	flags := cmd.Flags()
	file := newConfigFile(flags)
	operations := []string{"added", "deleted", "restated"}
	operation := choice{operations[0], operations}
	out := newOutput(cmd, stdout, formatTable, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 && (o.Offline || o.Resource != "") {
			return usageError(errors.New("--offline and --resource require an object in a file"))
		}
		cfg, _, err := file.read(o.Offline)
		if err != nil {
			return err
		}
		o.Operation = operation.value
		reports, err := o.Explain(cmd.Context(), cfg, args, cmd.InOrStdin())
		for n, r := range reports {
			if n > 0 && out.format.value == formatTable {
				_, _ = fmt.Fprintln(stdout) // if this write fails, the next write returns the error
			}
			if err := out.print(r); err != nil {
				return err
			}
		}
		return err
	}
	resources := file.completion(watchedResources)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := resources(cmd, args, prefix)
		return names, cobra.ShellCompDirectiveDefault // or a file
	}
	flags.StringVar(&o.Old, "old", "", "`file` with the previous state, for an update")
	flags.Var(&operation, "operation", "the change of the object, unless --old is set: "+strictyaml.OrList(operations))
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the object, if the file or the name has none")
	flags.StringVar(&o.Resource, "resource", "",
		"`resource` of the object in the file, for example deployments.apps (default: ask the API server)")
	flags.BoolVar(&o.Offline, "offline", false,
		"query neither the API server nor the destinations; the files that the configuration names need not exist")
	cmd.MarkFlagsMutuallyExclusive("old", "operation")
	completeWords(cmd, "operation", operations...)
	_ = cmd.RegisterFlagCompletionFunc("resource", resources) // the flag exists
	return cmd
}
