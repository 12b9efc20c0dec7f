package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/reload"
)

func newReloadCommand(stdout io.Writer) *cobra.Command {
	var wait bool
	var timeout time.Duration
	var addresses []string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Load the changed configuration file, without a restart",
		Long: "reload asks the bridge that runs with this configuration on this machine, or else the leader among\n" +
			"`http.peers:`, to read its configuration file now. The bridge also does so by itself, within seconds after the\n" +
			"file has changed. If the file has mistakes, nothing changes, and the command fails with the mistakes.\n\n" +
			"With --wait, it returns when all replicas that answer use the configuration that is in this file. With\n" +
			"--address, it only waits for the bridges at these addresses, and requires no permission.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.Flags().BoolVar(&wait, "wait", false, "return when all replicas use the configuration")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	cmd.Flags().StringSliceVar(&addresses, "address", nil, "only wait for the bridges at these `addresses` (host:port)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := file.read(true)
		if err != nil {
			return err
		}
		path, _, _ := file.find()
		hash, err := reload.HashFile(path)
		if err != nil {
			return err
		}
		if len(addresses) == 0 {
			addresses = cfg.HTTP.Addresses()
			answer, err := control.RequestReload(cmd.Context(), runningBridge(cfg))
			if _, _ = io.WriteString(stdout, answer); err != nil || !wait {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		read := func() []control.Answer { return control.ReadStatus(ctx, addresses) }
		if err := reload.Await(ctx, read, hash); err != nil {
			return err
		}
		_, err = fmt.Fprintln(stdout, "the configuration is in use")
		return err
	}
	return cmd
}
