package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func newClaimCommand(stdout io.Writer) *cobra.Command {
	var (
		path, sink string
		timeout    time.Duration
	)
	cmd := &cobra.Command{
		Use:   "claim",
		Short: "Register this cluster under a name that another cluster has registered at a destination",
		Long: "Each cluster is registered at its destinations with its name and the uid of its namespace kube-system. A\n" +
			"bridge sends nothing to a destination where its name is registered with another uid. Either another\n" +
			"cluster has the same name, or this cluster was rebuilt. claim is for rebuilt clusters: it registers the\n" +
			"name with the uid of the kubeconfig's cluster, in place of the other uid. A running bridge that waits\n" +
			"for this starts to send within seconds.\n\n" +
			"If a bridge of the other cluster is still running, stop it first: it loses the name.\n\n" +
			"Without --config it uses the file in " + configVariable + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmp.Or(path, os.Getenv(configVariable)))
			if err != nil {
				return err
			}
			ctx, cancel := untilSignal(cmd.Context(), slog.New(slog.DiscardHandler))
			defer cancel()
			ctx, stop := context.WithTimeout(ctx, timeout)
			defer stop()
			return claimNames(ctx, cfg, sink, stdout)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration `file`")
	cmd.Flags().StringVar(&sink, "sink", "", "`name` of the only sink (empty: all)")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "time limit for the command")
	return cmd
}

// claimNames registers the cluster's name at the destination of the sink `only`, or at those of all sinks if it is
// empty.
func claimNames(ctx context.Context, cfg *config.Config, only string, out io.Writer) error {
	chosen := cfg.Sinks
	if only != "" {
		n := slices.IndexFunc(chosen, func(s config.Sink) bool { return s.Name == only })
		if n < 0 {
			return fmt.Errorf("--sink %s: there is no such sink in the configuration", only)
		}
		chosen = chosen[n : n+1]
	}
	kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	uid, err := readClusterUID(ctx, kube)
	if err != nil {
		return err
	}
	var failed []error
	for n := range chosen {
		result, err := claimName(ctx, &chosen[n], sinks.Owner{Cluster: cfg.Cluster, UID: uid})
		if err == nil {
			_, err = fmt.Fprintf(out, "%s: %s\n", chosen[n].Name, result)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("sink %s: %w", chosen[n].Name, err))
		}
	}
	return errors.Join(failed...)
}

// readClusterUID returns the uid of the cluster of a kubeconfig.
func readClusterUID(ctx context.Context, kube *rest.Config) (string, error) {
	client, err := informer.NewClient(kube)
	if err != nil {
		return "", err
	}
	uid, err := tracker.ReadClusterUID(ctx, client)
	if err == nil && uid == "" {
		err = errors.New("not allowed to read the namespace kube-system, whose uid identifies the cluster")
	}
	return uid, err
}

// claimName registers an owner at the destination of one sink, and returns a sentence about what it did.
func claimName(ctx context.Context, s *config.Sink, owner sinks.Owner) (result string, err error) {
	client, err := assemble.NewClient(s)
	if err != nil {
		return "", err
	}
	d, ok := client.Sink.(sinks.Identified)
	if !ok {
		return "its destination has no register of names", nil
	}
	defer closeDestination(ctx, client)
	if err := client.Connect(ctx); err != nil {
		return "", err
	}
	before, err := d.Registered(ctx, owner.Cluster)
	if err != nil {
		return "", err
	}
	if before.UID == owner.UID {
		return fmt.Sprintf("%q is already registered for this cluster (uid %s) in %s", owner.Cluster, owner.UID, d.Destination()), nil
	}
	if err := d.Register(ctx, owner, before.UID); err != nil {
		return "", err
	}
	if err := sinks.Claim(ctx, d, s.Name, owner); err != nil { // another bridge has registered it meanwhile
		return "", err
	}
	result = fmt.Sprintf("%q is now registered for this cluster (uid %s) in %s", owner.Cluster, owner.UID, d.Destination())
	if before.UID != "" {
		since := before.Since.UTC().Format(time.RFC3339)
		result += fmt.Sprintf(", in place of the cluster with uid %s (registered at %s)", before.UID, since)
	}
	return result, nil
}

// closeTimeout limits the closing of a command's connections.
const closeTimeout = 5 * time.Second

// closeDestination closes the connections of a command. It does so even if ctx has ended.
func closeDestination(ctx context.Context, d *assemble.Destination) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = d.Close(last) // an error here does not change the result of the command
}
