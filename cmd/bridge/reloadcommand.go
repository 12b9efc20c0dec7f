package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
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
		hash, err := configurationHash(path)
		if err != nil {
			return err
		}
		if len(addresses) == 0 {
			addresses = statusAddresses(cfg)
			answer, err := control.RequestReload(cmd.Context(), runningBridge(cfg))
			if _, _ = io.WriteString(stdout, answer); err != nil || !wait {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		read := func() []control.Answer { return control.ReadStatus(ctx, addresses) }
		if err := awaitConfiguration(ctx, read, hash); err != nil {
			return err
		}
		_, err = fmt.Fprintln(stdout, "the configuration is in use")
		return err
	}
	return cmd
}

// refusalPatience is how long a replica may refuse its configuration file before awaitConfiguration fails. Until the
// replica has read the file again, its status can have the reason why it refused an earlier file.
const refusalPatience = 2 * pollInterval

// awaitConfiguration waits until all replicas that answer use the configuration with the hash. It returns an error if a
// replica refuses its file.
func awaitConfiguration(ctx context.Context, read func() []control.Answer, hash string) error {
	for began := time.Now(); ; {
		answers := read()
		waits, err := notInUse(answers, hash)
		if err == nil && len(waits) == 0 || err != nil && time.Since(began) >= refusalPatience {
			return err
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return errors.New("the configuration in the file is not in use: " + strings.Join(waits, "; "))
		case <-time.After(time.Second):
		}
	}
}

// notInUse returns, for each replica that does not use the configuration with the hash, why. It returns an error if a
// replica refuses its configuration file.
func notInUse(answers []control.Answer, hash string) (waits []string, err error) {
	answered := false
	for _, a := range answers {
		if a.Status == nil {
			continue
		}
		answered = true
		name, c := console.Clean(a.Replica.Name), a.Configuration
		switch {
		case c.Error != nil:
			return nil, fmt.Errorf("%s refuses its configuration file: %s", name, console.Clean(c.Error.Text))
		case c.Hash == hash:
		case c.Waits != "":
			waits = append(waits, name+" "+console.Clean(c.Waits))
		default:
			waits = append(waits, name+" uses another configuration")
		}
	}
	if !answered {
		for _, a := range answers {
			waits = append(waits, a.Address+": "+console.Clean(a.Error))
		}
		waits = append(waits, "no bridge answers")
	}
	return waits, nil
}
