package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/spf13/cobra"
)

// stillRejected is the exit code of `bridge dead-letters resend` if the destination rejects some events again.
const stillRejected = 2

// deadLetterOptions are the flags of `bridge dead-letters` and its subcommands.
type deadLetterOptions struct {
	path, sink, output string
	all, force         bool
	timeout            time.Duration

	stdout, stderr io.Writer
}

func newDeadLettersCommand(stdout, stderr io.Writer) *cobra.Command {
	o := &deadLetterOptions{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List, show, re-send or drop events that destinations have rejected",
		Long: "dead-letters reads and changes the files of sinks with deadLetter.file, in the state directory. It works\n" +
			"whether or not the bridge is running. A dead letter has the id of its event.\n\n" +
			"Without --config it uses the file in " + configVariable + ", which is set in a pod of the chart.",
		Example: "  bridge dead-letters list -c bridge.yaml\n" +
			"  bridge dead-letters show -c bridge.yaml 6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.48213\n" +
			"  bridge dead-letters resend -c bridge.yaml --sink audit --all\n" +
			"  bridge dead-letters drop -c bridge.yaml --sink audit 6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.48213",
	}
	cmd.PersistentFlags().StringVarP(&o.path, "config", "c", "", "configuration `file`")
	cmd.PersistentFlags().StringVar(&o.sink, "sink", "", "`name` of the sink (default: all)")

	list := &cobra.Command{
		Use: "list", Short: "List dead letters, the oldest first", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.list() },
	}
	list.Flags().StringVarP(&o.output, "output", "o", "table", "`format`: table or json")
	show := &cobra.Command{
		Use: "show ID...", Short: "Show why events were rejected, and what resend would send", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, ids []string) error { return o.show(ids) },
	}
	resend := &cobra.Command{
		Use: "resend [ID...]", Short: "Re-send dead letters, and remove those that are acknowledged",
		Long: "resend connects to the sink's destination itself. The events have the attribute resent. They may arrive\n" +
			"after newer events of the same object, so consumers must compare the resourceVersion. If the destination\n" +
			"keeps only the last event of each object, an old event would replace a newer one: resend then requires\n" +
			"--force.\n\n" +
			"It exits with 0 if all events were acknowledged and removed, with 2 if some were rejected again (they\n" +
			"are kept), and with 1 otherwise.",
		RunE: func(cmd *cobra.Command, ids []string) error {
			ctx, cancel := untilSignal(cmd.Context(), slog.New(slog.DiscardHandler))
			defer cancel()
			return o.resend(ctx, ids)
		},
	}
	resend.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "time limit for each event")
	resend.Flags().BoolVar(&o.force, "force", false, "re-send even if an event can replace a newer one at the destination")
	drop := &cobra.Command{
		Use: "drop [ID...]", Short: "Remove dead letters without sending them",
		RunE: func(_ *cobra.Command, ids []string) error { return o.drop(ids) },
	}
	for _, c := range []*cobra.Command{resend, drop} {
		c.Flags().BoolVar(&o.all, "all", false, "select all dead letters instead of single ids")
	}
	cmd.AddCommand(list, show, resend, drop)
	return cmd
}

// sinkDeadLetters are the dead letters of one sink.
type sinkDeadLetters struct {
	sink    *config.Sink
	file    *deadletter.File
	letters []deadletter.Letter // the oldest first, without messages
}

// readFiles returns the dead letters of the selected sinks, without sinks that have none.
func (o *deadLetterOptions) readFiles() ([]sinkDeadLetters, error) {
	path := cmp.Or(o.path, os.Getenv(configVariable))
	if path == "" {
		return nil, errors.New("--config is required")
	}
	cfg, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	var all []sinkDeadLetters
	known := false
	for n := range cfg.Sinks {
		s := &cfg.Sinks[n]
		if o.sink != "" && s.Name != o.sink {
			continue
		}
		known = true
		if d := s.DeadLetter; d != nil && d.File == nil {
			_, _ = fmt.Fprintf(o.stderr, "sink %s sends its dead letters to %s%s: read them there\n", s.Name, d.Topic, d.Subject)
		}
		b := sinkDeadLetters{sink: s, file: assemble.DeadLetterFile(cfg.State.Path, s)}
		if b.letters, err = b.file.List(); err != nil {
			return nil, fmt.Errorf("sink %s: %w", s.Name, err)
		}
		if len(b.letters) > 0 {
			all = append(all, b)
		}
	}
	if !known {
		return nil, fmt.Errorf("--sink %s: there is no such sink", o.sink)
	}
	return all, nil
}

// choose returns the dead letters with the given ids, or all of them with --all.
func (o *deadLetterOptions) choose(ids []string) ([]sinkDeadLetters, error) {
	if (len(ids) > 0) == o.all {
		return nil, errors.New("specify either ids of events or --all")
	}
	all, err := o.readFiles()
	if err != nil || o.all {
		return all, err
	}
	out := make([]sinkDeadLetters, len(all))
	for n := range all {
		out[n] = all[n]
		out[n].letters = nil
	}
	for _, id := range ids {
		var holders []string
		for n, b := range all {
			for _, l := range b.letters {
				if l.ID == id {
					out[n].letters = append(out[n].letters, l)
					holders = append(holders, b.sink.Name)
				}
			}
		}
		switch {
		case len(holders) == 0:
			return nil, fmt.Errorf("%w: %s", deadletter.ErrNotFound, id)
		case len(holders) > 1:
			return nil, fmt.Errorf("%s is a dead letter of several sinks: choose one with --sink (%s)",
				id, strings.Join(holders, ", "))
		}
	}
	return out, nil
}

func (o *deadLetterOptions) list() error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("--output %s: must be table or json", o.output)
	}
	all, err := o.readFiles()
	if err != nil {
		return err
	}
	if o.output == "json" {
		type entry struct {
			Sink string `json:"sink"`
			deadletter.Letter
		}
		entries := []entry{}
		for _, b := range all {
			for _, l := range b.letters {
				entries = append(entries, entry{b.sink.Name, l})
			}
		}
		encoder := json.NewEncoder(o.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(entries)
	}
	table := tabwriter.NewWriter(o.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SINK\tREJECTED\tREASON\tBYTES\tOPERATION\tOBJECT\tID") // Flush returns the error
	for _, b := range all {
		for _, l := range b.letters {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", b.sink.Name, l.Time.Local().Format(time.DateTime),
				l.Reason, l.Bytes, l.Operation, console.Clean(l.Subject), console.Clean(l.ID))
		}
	}
	return table.Flush()
}

// show prints each dead letter: why it was rejected, its attributes, and the data that resend would send.
func (o *deadLetterOptions) show(ids []string) error {
	all, err := o.choose(ids)
	if err != nil {
		return err
	}
	for _, b := range all {
		for _, l := range b.letters {
			l, err := b.file.Get(l.ID)
			if err != nil {
				return err
			}
			var text strings.Builder
			fmt.Fprintf(&text, "sink:     %s\nrejected: %s\nreason:   %s\nerror:    %s\n\n",
				b.sink.Name, l.Time.Format(time.RFC3339), l.Reason, console.Clean(l.Error))
			for name, value := range l.Message.Attributes {
				fmt.Fprintf(&text, "%s: %s\n", name, console.Clean(value))
			}
			fmt.Fprintf(&text, "\n%s\n\n", l.Message.Data)
			if _, err := io.WriteString(o.stdout, text.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *deadLetterOptions) drop(ids []string) error {
	all, err := o.choose(ids)
	if err != nil {
		return err
	}
	for _, b := range all {
		for _, l := range b.letters {
			if _, err := b.file.Drop(l.ID); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(o.stdout, "%s  %s  dropped\n", b.sink.Name, console.Clean(l.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}
