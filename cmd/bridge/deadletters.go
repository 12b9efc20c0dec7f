package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/spf13/cobra"
)

// stillRejected is the exit code of `bridge dead-letters resend` if the destination rejects events again.
const stillRejected = 2

// deadLetterOptions contains the flags of `bridge dead-letters` and its subcommands.
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
		Long: "dead-letters reads and changes the dead letters that sinks with deadLetter.file store in the state directory.\n" +
			"It works whether or not the bridge is running. A dead letter has the id of its event.",
		Example: "  bridge dead-letters list -c bridge.yaml\n" +
			"  bridge dead-letters show -c bridge.yaml 6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.48213\n" +
			"  bridge dead-letters resend -c bridge.yaml --sink audit --all\n" +
			"  bridge dead-letters drop -c bridge.yaml --sink audit 6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.48213",
	}
	configFlag(cmd.PersistentFlags(), &o.path)
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
		RunE: func(cmd *cobra.Command, ids []string) error { return o.resend(cmd.Context(), ids) },
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

// deadLetter is a dead letter without its message, together with its sink and its store.
type deadLetter struct {
	Sink string `json:"sink"`
	deadletter.Letter
	config *config.Sink
	store  *deadletter.Store
}

// read returns the dead letters of the selected sinks, grouped by sink and sorted from oldest to newest.
func (o *deadLetterOptions) read() ([]deadLetter, error) {
	cfg, err := loadConfig(o.path)
	if err != nil {
		return nil, err
	}
	selected, err := selectSinks(cfg, o.sink)
	if err != nil {
		return nil, err
	}
	all := []deadLetter{} // an empty list in JSON, not null
	for n := range selected {
		s := &selected[n]
		if d := s.DeadLetter; d != nil && d.File == nil {
			_, _ = fmt.Fprintf(o.stderr, "sink %s sends its dead letters to %s%s: read them there\n", s.Name, d.Topic, d.Subject)
		}
		store := assemble.DeadLetterStore(cfg.State.Path, s)
		letters, err := store.List()
		if err != nil {
			return nil, fmt.Errorf("sink %s: %w", s.Name, err)
		}
		for _, l := range letters {
			all = append(all, deadLetter{s.Name, l, s, store})
		}
	}
	return all, nil
}

// choose returns the dead letters with the given ids. If --all is set, it returns all dead letters.
func (o *deadLetterOptions) choose(ids []string) ([]deadLetter, error) {
	if (len(ids) > 0) == o.all {
		return nil, errors.New("specify either event ids or --all")
	}
	all, err := o.read()
	if err != nil || o.all {
		return all, err
	}
	var chosen []deadLetter
	for _, id := range ids {
		has := func(l deadLetter) bool { return l.ID == id }
		n := slices.IndexFunc(all, has)
		if n < 0 {
			return nil, fmt.Errorf("%w: %s", deadletter.ErrNotFound, id)
		}
		if other := slices.IndexFunc(all[n+1:], has); other >= 0 {
			return nil, fmt.Errorf("%s is a dead letter of several sinks: choose one with --sink (%s, %s)",
				id, all[n].Sink, all[n+1+other].Sink)
		}
		chosen = append(chosen, all[n])
	}
	return chosen, nil
}

func (o *deadLetterOptions) list() error {
	if err := checkOutput(o.output, "table", "json"); err != nil {
		return err
	}
	all, err := o.read()
	if err != nil {
		return err
	}
	if o.output == "json" {
		return console.WriteJSON(o.stdout, all)
	}
	table := tabwriter.NewWriter(o.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SINK\tREJECTED\tREASON\tBYTES\tOPERATION\tOBJECT\tID") // Flush returns the error
	for _, l := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", l.Sink, l.Time.Local().Format(time.DateTime),
			l.Reason, l.Bytes, l.Operation, console.Clean(l.Subject), console.Clean(l.ID))
	}
	return table.Flush()
}

// show prints the chosen dead letters: the reason for the rejection, the attributes, and the data that resend would
// send.
func (o *deadLetterOptions) show(ids []string) error {
	chosen, err := o.choose(ids)
	if err != nil {
		return err
	}
	for _, l := range chosen {
		full, err := l.store.Get(l.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.stdout, "sink:     %s\nrejected: %s\nreason:   %s\nerror:    %s\n\n",
			l.Sink, l.Time.Format(time.RFC3339), l.Reason, console.Clean(l.Error))
		for name, value := range full.Message.Attributes {
			fmt.Fprintf(o.stdout, "%s: %s\n", name, console.Clean(value))
		}
		if _, err := fmt.Fprintf(o.stdout, "\n%s\n\n", full.Message.Data); err != nil {
			return err
		}
	}
	return nil
}

func (o *deadLetterOptions) drop(ids []string) error {
	chosen, err := o.choose(ids)
	if err != nil {
		return err
	}
	for _, l := range chosen {
		if _, err := l.store.Drop(l.ID); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(o.stdout, "%s  %s  dropped\n", l.Sink, console.Clean(l.ID)); err != nil {
			return err
		}
	}
	return nil
}
