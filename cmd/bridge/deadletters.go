package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/spf13/cobra"
)

// deadLetterOptions contains the flags of `bridge dead-letters` and its subcommands.
type deadLetterOptions struct {
	config     *configFile
	sink       string
	all, force bool
	timeout    time.Duration

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
		Args: cobra.NoArgs, // with RunE, an unknown subcommand is an error
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.config = newConfigFile(cmd.PersistentFlags())
	o.config.addSink(cmd, cmd.PersistentFlags(), &o.sink, "`name` of the sink (default: all)")

	list := &cobra.Command{
		Use: "list", Short: "List dead letters, the oldest first", Args: cobra.NoArgs,
	}
	listed := newOutput(list, stdout, formatTable, formatJSON)
	list.RunE = func(*cobra.Command, []string) error { return o.list(listed) }
	show := &cobra.Command{
		Use: "show ID...", Short: "Show why events were rejected, and what resend would send", Args: cobra.MinimumNArgs(1),
	}
	shown := newOutput(show, stdout, formatText, formatJSON)
	show.RunE = func(_ *cobra.Command, ids []string) error { return o.show(ids, shown) }
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
	for _, c := range []*cobra.Command{show, resend, drop} {
		c.ValidArgsFunction = o.config.completion(o.ids)
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

// ids returns the ids of the dead letters of the selected sinks.
func (o *deadLetterOptions) ids(cfg *config.Config) (ids []string) {
	all, _ := o.readFrom(cfg)
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	return ids
}

// read returns the dead letters of the selected sinks, grouped by sink and sorted from oldest to newest.
func (o *deadLetterOptions) read() ([]deadLetter, error) {
	cfg, err := o.config.load()
	if err != nil {
		return nil, err
	}
	return o.readFrom(cfg)
}

func (o *deadLetterOptions) readFrom(cfg *config.Config) ([]deadLetter, error) {
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
		return nil, usageError(errors.New("specify either event ids or --all"))
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
			return nil, usageError(fmt.Errorf("%s is a dead letter of several sinks: choose one with --sink (%s, %s)",
				id, all[n].Sink, all[n+1+other].Sink))
		}
		chosen = append(chosen, all[n])
	}
	return chosen, nil
}

func (o *deadLetterOptions) list(out *output) error {
	all, err := o.read()
	if err != nil {
		return err
	}
	return out.print(letterList(all))
}

// letterList is the report of `bridge dead-letters list`.
type letterList []deadLetter

func (all letterList) WriteTable(w io.Writer, _ console.Style) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SINK\tREJECTED\tREASON\tBYTES\tOPERATION\tOBJECT\tID") // Flush returns the error
	for _, l := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", l.Sink, l.Time.Local().Format(time.DateTime),
			l.Reason, l.Bytes, l.Operation, console.Clean(l.Subject), console.Clean(l.ID))
	}
	return table.Flush()
}

// shownLetter is a dead letter with its message.
type shownLetter struct {
	deadLetter
	Attributes map[string]string `json:"attributes"`
	Data       json.RawMessage   `json:"data"` // what resend would send
}

// show prints the chosen dead letters.
func (o *deadLetterOptions) show(ids []string, out *output) error {
	chosen, err := o.choose(ids)
	if err != nil {
		return err
	}
	for _, l := range chosen {
		full, err := l.store.Get(l.ID)
		if err != nil {
			return err
		}
		if err := out.print(&shownLetter{l, maps.Collect(full.Message.Attributes), full.Message.Data}); err != nil {
			return err
		}
	}
	return nil
}

func (l *shownLetter) WriteTable(w io.Writer, _ console.Style) error {
	var text strings.Builder
	fmt.Fprintf(&text, "sink:     %s\nrejected: %s\nreason:   %s\nerror:    %s\n\n",
		l.Sink, l.Time.Format(time.RFC3339), l.Reason, console.Clean(l.Error))
	for _, name := range slices.Sorted(maps.Keys(l.Attributes)) {
		fmt.Fprintf(&text, "%s: %s\n", name, console.Clean(l.Attributes[name]))
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n\n", text.String(), l.Data)
	return err
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
