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
		Short: "Hand the name of a cluster over to this cluster, at a destination that knows it as another one's",
		Long: "A destination knows each cluster that writes to it by its name and by the uid of its namespace kube-system, and a bridge\n" +
			"sends nothing to a destination that knows the name with another uid: another cluster has the same name, or this one was\n" +
			"rebuilt. claim is for the second case. It registers the name with the uid of the cluster of the kubeconfig, in place of\n" +
			"the one that is registered. A bridge that runs and waits for it begins to send within seconds.\n\n" +
			"Of two bridges that write under one name, the one that lost it stops when it connects again: end it first.\n\n" +
			"Without --config it takes the file that " + configVariable + " names.",
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
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long it may take")
	return cmd
}

// claimNames registers the cluster's name at the destinations of one sink or of all.
func claimNames(ctx context.Context, cfg *config.Config, only string, out io.Writer) error {
	chosen := cfg.Sinks
	if only != "" {
		n := slices.IndexFunc(chosen, func(s config.Sink) bool { return s.Name == only })
		if n < 0 {
			return fmt.Errorf("there is no sink %q in the configuration", only)
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
		said, err := claimName(ctx, &chosen[n], sinks.Owner{Cluster: cfg.Cluster, UID: uid})
		if err == nil {
			_, err = fmt.Fprintf(out, "%s: %s\n", chosen[n].Name, said)
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
		err = errors.New("this user may not read the namespace kube-system, whose uid names the cluster")
	}
	return uid, err
}

// claimName registers an owner at the destination of one sink, and says what it did.
func claimName(ctx context.Context, s *config.Sink, owner sinks.Owner) (said string, err error) {
	client, err := assemble.NewClient(s)
	if err != nil {
		return "", err
	}
	d, ok := client.Sink.(sinks.Identified)
	if !ok {
		return "its destination knows no names", nil
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
		return fmt.Sprintf("%s knows %q as this cluster (uid %s) already", d.Destination(), owner.Cluster, owner.UID), nil
	}
	if err := d.Register(ctx, owner, before.UID); err != nil {
		return "", err
	}
	if err := sinks.Claim(ctx, d, s.Name, owner); err != nil { // another one was first
		return "", err
	}
	said = fmt.Sprintf("%s knows %q as this cluster now (uid %s)", d.Destination(), owner.Cluster, owner.UID)
	if before.UID != "" {
		said += fmt.Sprintf(", and no longer as the one with the uid %s (since %s)", before.UID, before.Since.UTC().Format(time.RFC3339))
	}
	return said, nil
}

// closeTimeout bounds the closing of a command's connections.
const closeTimeout = 5 * time.Second

// closeDestination closes the connections of a command, whether or not ctx has ended.
func closeDestination(ctx context.Context, d *assemble.Destination) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = d.Close(last) // the command has done what it does
}
