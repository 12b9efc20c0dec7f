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

// stillRefused is the exit code of `bridge dead-letters resend` where the destination refuses some again.
const stillRefused = 2

// letterOptions are the flags of `bridge dead-letters` and its commands.
type letterOptions struct {
	path, sink, output string
	all, force         bool
	timeout            time.Duration

	stdout, stderr io.Writer
}

func newDeadLettersCommand(stdout, stderr io.Writer) *cobra.Command {
	o := &letterOptions{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List, show, send again or drop what destinations refused for good",
		Long: "dead-letters works on the files of sinks with deadLetter.file, in the folder of the state, while the bridge runs and\n" +
			"while it does not. An entry is named by the id of its event.\n\n" +
			"Without --config it takes the file that " + configVariable + " names, as in a pod of the chart.",
		Example: "  bridge dead-letters list -c bridge.yaml\n" +
			"  bridge dead-letters show -c bridge.yaml 6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.48213\n" +
			"  bridge dead-letters resend -c bridge.yaml --sink audit --all\n" +
			"  bridge dead-letters drop -c bridge.yaml --sink audit 6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.48213",
	}
	cmd.PersistentFlags().StringVarP(&o.path, "config", "c", "", "configuration `file`")
	cmd.PersistentFlags().StringVar(&o.sink, "sink", "", "`name` of the sink (default: all)")

	list := &cobra.Command{
		Use: "list", Short: "List them, the oldest first", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.list() },
	}
	list.Flags().StringVarP(&o.output, "output", "o", "table", "`format`: table or json")
	show := &cobra.Command{
		Use: "show ID...", Short: "Show why they were refused, and what would be sent", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, ids []string) error { return o.show(ids) },
	}
	resend := &cobra.Command{
		Use: "resend [ID...]", Short: "Send them again, and remove those that are acknowledged",
		Long: "resend connects to the sink's destination itself. What is sent has the attribute resent, and comes after newer events of\n" +
			"its object: readers compare the resourceVersion. Where the destination keeps the last event of each object, as a mirror,\n" +
			"an old one would take the place of a newer one: there it wants --force.\n\n" +
			"It ends with 0 if all were acknowledged and removed, with 2 if some are refused again (they stay), and with 1 otherwise.",
		RunE: func(cmd *cobra.Command, ids []string) error {
			ctx, cancel := untilSignal(cmd.Context(), slog.New(slog.DiscardHandler))
			defer cancel()
			return o.resend(ctx, ids)
		},
	}
	resend.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long the destination may take for each")
	resend.Flags().BoolVar(&o.force, "force", false, "also where it takes the place of a newer event")
	drop := &cobra.Command{
		Use: "drop [ID...]", Short: "Remove them",
		RunE: func(_ *cobra.Command, ids []string) error { return o.drop(ids) },
	}
	for _, c := range []*cobra.Command{resend, drop} {
		c.Flags().BoolVar(&o.all, "all", false, "all of them, instead of those that are named")
	}
	cmd.AddCommand(list, show, resend, drop)
	return cmd
}

// box is the dead letters of one sink.
type box struct {
	sink    *config.Sink
	file    *deadletter.File
	letters []deadletter.Letter // the oldest first, without messages
}

// boxes reads the files of the sinks that are asked for.
func (o *letterOptions) boxes() ([]box, error) {
	path := cmp.Or(o.path, os.Getenv(configVariable))
	if path == "" {
		return nil, errors.New("name the configuration with --config")
	}
	cfg, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	var all []box
	known := false
	for n := range cfg.Sinks {
		s := &cfg.Sinks[n]
		if o.sink != "" && s.Name != o.sink {
			continue
		}
		known = true
		if d := s.DeadLetter; d != nil && d.File == nil {
			_, _ = fmt.Fprintf(o.stderr, "sink %s sends its dead letters to %s%s: read them there\n", s.Name, d.Topic, d.Subject) // a note
		}
		b := box{sink: s, file: assemble.DeadLetterFile(cfg.State.Path, s)}
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

// chosen is the boxes with those letters alone that were asked for.
func (o *letterOptions) chosen(ids []string) ([]box, error) {
	if (len(ids) > 0) == o.all {
		return nil, errors.New("name the ids of events, or write --all")
	}
	all, err := o.boxes()
	if err != nil || o.all {
		return all, err
	}
	out := make([]box, len(all))
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
			return nil, fmt.Errorf("%s is a dead letter of several sinks: choose one with --sink (%s)", id, strings.Join(holders, ", "))
		}
	}
	return out, nil
}

func (o *letterOptions) list() error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("--output %s: want table or json", o.output)
	}
	all, err := o.boxes()
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
	_, _ = fmt.Fprintln(table, "SINK\tREFUSED\tREASON\tBYTES\tOPERATION\tOBJECT\tID") // Flush tells
	for _, b := range all {
		for _, l := range b.letters {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", b.sink.Name, l.Time.Local().Format(time.DateTime), l.Reason, l.Bytes,
				l.Operation, console.Clean(l.Subject), console.Clean(l.ID))
		}
	}
	return table.Flush()
}

// show prints an entry for each: the head, the attributes, and the data as it would be sent.
func (o *letterOptions) show(ids []string) error {
	all, err := o.chosen(ids)
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
			fmt.Fprintf(&text, "sink:    %s\nrefused: %s\nreason:  %s\nerror:   %s\n\n", b.sink.Name, l.Time.Format(time.RFC3339), l.Reason, console.Clean(l.Error))
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

func (o *letterOptions) drop(ids []string) error {
	all, err := o.chosen(ids)
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
