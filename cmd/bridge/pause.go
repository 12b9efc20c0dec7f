package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
)

func newPauseCommand(stdout io.Writer) *cobra.Command {
	return pauseCommand(stdout, true, &cobra.Command{
		Use:   "pause SINK...",
		Short: "Stop sending to sinks, for example while their broker is maintained",
		Long: "pause asks the bridge that runs with this configuration on this machine, or else the leader among\n" +
			"`http.peers:`, to send nothing to the sinks until `bridge resume`. Their events wait in memory and then on\n" +
			"disk, as in an outage of the broker. A paused sink stays paused after a restart, and after another replica\n" +
			"has taken over. The command returns when the events that are being sent are acknowledged or have failed.",
	})
}

func newResumeCommand(stdout io.Writer) *cobra.Command {
	return pauseCommand(stdout, false, &cobra.Command{
		Use:   "resume SINK...",
		Short: "Continue sending to paused sinks",
		Long:  "resume ends `bridge pause`: the events that wait are sent first, in order.",
	})
}

// pauseCommand completes a command that pauses or resumes the sinks that its arguments name.
func pauseCommand(stdout io.Writer, paused bool, cmd *cobra.Command) *cobra.Command {
	file := newConfigFile(cmd.Flags())
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.ValidArgsFunction = file.completion(func(cfg *config.Config) []string { return config.SinkNames(cfg.Sinks) })
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		cfg, _, err := file.read(true)
		if err != nil {
			return err
		}
		for _, sink := range names {
			answer, err := control.RequestPause(cmd.Context(), runningBridge(cfg), sink, paused)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(stdout, answer); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
