package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/deltabridge/deltabridge/internal/explain"
)

func newExplainCommand(stdout io.Writer) *cobra.Command {
	o := explain.Options{Version: version}
	var path, output string
	cmd := &cobra.Command{
		Use:   "explain (FILE | RESOURCE [NAMESPACE/]NAME)",
		Short: "Say what each sink would be sent of an object, where to, and why",
		Long: "explain takes an object, from a file (YAML or JSON, - for standard input) or as the cluster of the kubeconfig has it\n" +
			"now, and says which entry of `watch` covers it, what each filter of each sink makes of it, and which message would go\n" +
			"where: id, subject or topic, key and partition, headers, and size against what the destination takes.\n\n" +
			"It goes the way of run, by the same code, and sends and changes nothing. It asks the API server what the resource of a\n" +
			"file is called, and the destinations for partitions and limits; with --offline it asks nobody.",
		Example: "  bridge explain -c bridge.yaml web.yaml\n" +
			"  bridge explain -c bridge.yaml pods default/web\n" +
			"  bridge explain -c bridge.yaml deployments.apps shop/web --operation deleted\n" +
			"  bridge explain -c bridge.yaml now.yaml --old before.yaml -o json",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %s: want table or json", output)
			}
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			klog.SetLogger(logr.Discard())
			ctx, cancel := untilSignal(cmd.Context(), slog.New(slog.DiscardHandler))
			defer cancel()
			reports, err := o.Reports(ctx, cfg, args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return printReports(stdout, reports, output == "json")
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&path, "config", "c", "", "configuration `file`")
	_ = cmd.MarkFlagRequired("config")
	flags.StringVar(&o.Old, "old", "", "`file` with the state before, for an update")
	flags.StringVar(&o.Operation, "operation", "", "added, updated, deleted or restated (default: updated with --old, else added)")
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the object, if it is not given with it")
	flags.StringVar(&o.Resource, "resource", "", "`resource` of the object in the file, as in deployments.apps (default: what the API server says)")
	flags.BoolVar(&o.Offline, "offline", false, "ask neither the API server nor the destinations")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "how long the API server, and each destination, may take")
	flags.StringVarP(&output, "output", "o", "table", "`format`: table or json")
	return cmd
}

func printReports(stdout io.Writer, reports []*explain.Report, asJSON bool) error {
	for n, r := range reports {
		var err error
		if asJSON {
			err = r.WriteJSON(stdout)
		} else {
			if n > 0 {
				_, _ = fmt.Fprintln(stdout) // the next write tells
			}
			err = r.WriteTable(stdout, consoleStyle(stdout))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
