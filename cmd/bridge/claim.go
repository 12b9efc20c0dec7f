package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// claimTimeout is the time limit for `bridge claim`.
const claimTimeout = 30 * time.Second

func newClaimCommand(stdout io.Writer) *cobra.Command {
	var sink string
	cmd := &cobra.Command{
		Use:   "claim",
		Short: "Take over a cluster name that is registered for another cluster",
		Long: "Each cluster is registered at its destinations with its name and the uid of its namespace kube-system. A\n" +
			"bridge sends nothing to a destination where its name is registered with another uid. Either another\n" +
			"cluster has the same name, or this cluster was rebuilt. claim is for rebuilt clusters: it registers the\n" +
			"name with the uid of the kubeconfig's cluster, in place of the other uid. A running bridge that is\n" +
			"waiting for the name starts to send within seconds.\n\n" +
			"The same applies to a bridge that begins without the state of the bridge before it, because one of them\n" +
			"has state.log and the other one does not: claim is for a state that is lost.\n\n" +
			"If a bridge of the other cluster is still running, stop it first: it loses the name.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	file.addSink(cmd, &sink, "claim the name only for the sink with this `name` (default: all sinks)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := file.load()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), claimTimeout)
		defer cancel()
		return claimNames(ctx, cfg, sink, stdout)
	}
	return cmd
}

// claimNames registers the cluster's name at the destination of the sink `only`. If `only` is empty, claimNames
// registers the name at the destinations of all sinks.
func claimNames(ctx context.Context, cfg *config.Config, only string, out io.Writer) error {
	chosen, err := selectSinks(cfg, only)
	if err != nil {
		return err
	}
	kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := informer.NewClient(kube)
	if err != nil {
		return err
	}
	uid, err := tracker.ReadClusterUID(ctx, client)
	if err == nil && uid == "" {
		err = errors.New("not allowed to read the namespace kube-system, whose uid identifies the cluster")
	}
	if err != nil {
		return err
	}
	state := sinks.StateFile
	if cfg.State.Log != nil {
		state = sinks.StateLog
	}
	var failed []error
	for n := range chosen {
		result, err := claimName(ctx, &chosen[n], sinks.Owner{Cluster: cfg.Cluster, UID: uid, State: state})
		if err == nil {
			_, err = fmt.Fprintf(out, "%s: %s\n", chosen[n].Name, result)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("sink %s: %w", chosen[n].Name, err))
		}
	}
	return errors.Join(failed...)
}

// claimName registers an owner at the destination of one sink. It returns a sentence that describes the result.
func claimName(ctx context.Context, s *config.Sink, owner sinks.Owner) (result string, err error) {
	client, err := assemble.NewClient(s)
	if err != nil {
		return "", err
	}
	d, ok := client.Sink.(sinks.Identified)
	if !ok {
		return "nothing to do: the destination does not register cluster names", nil
	}
	defer closeDestination(ctx, client)
	if err := client.Connect(ctx); err != nil {
		return "", err
	}
	before, err := d.Registered(ctx, owner.Cluster)
	if err != nil {
		return "", err
	}
	if before.UID == owner.UID && before.State == owner.State {
		return fmt.Sprintf("%q is already registered for this cluster (uid %s) in %s",
			owner.Cluster, owner.UID, d.Destination()), nil
	}
	if err := d.Register(ctx, owner, before.UID); err != nil {
		return "", err
	}
	if err := sinks.Claim(ctx, d, s.Name, owner); err != nil { // another bridge was faster
		return "", err
	}
	result = fmt.Sprintf("%q is now registered for this cluster (uid %s) in %s", owner.Cluster, owner.UID, d.Destination())
	if before.UID != "" && before.UID != owner.UID {
		since := before.Since.UTC().Format(time.RFC3339)
		result += fmt.Sprintf(", in place of the cluster with uid %s (registered at %s)", before.UID, since)
	}
	return result, nil
}
