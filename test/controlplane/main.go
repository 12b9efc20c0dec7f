package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs name time zones; the machine may have no database of them

	"github.com/spf13/cobra"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "A real Kubernetes control plane in one folder on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(etcdCommand(), apiServerCommand())
	return root
}

// mustRequire marks flags as required. It fails only for a flag that does not
// exist, which is a mistake in this program.
func mustRequire(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
}
