package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/election"
)

func newStatusCommand(stdout io.Writer) *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show all replicas of the bridge, and the last take-over",
		Long: "status asks the HTTP ports of all replicas, and prints one line for each, the leader first. The addresses\n" +
			"are those in `http.peers:`, or else the bridge's own address in `http.listen:`. A name stands for all its\n" +
			"addresses. Below the table are the steps of the last take-over, and how long each took.\n\n" +
			"It exits with 1 if no replica delivers, and with 2 if anything else is wrong, for example if a replica\n" +
			"does not answer or is not ready, or a sink's broker is unavailable.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.Flags().StringSliceVar(&addresses, "address", nil,
		"ask these `addresses` (host:port), without a configuration")
	cmd.MarkFlagsMutuallyExclusive("config", "address")
	out := newOutput(cmd, stdout, formatText, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(addresses) == 0 {
			cfg, _, err := file.read(true)
			if err != nil {
				return err
			}
			addresses = statusAddresses(cfg)
		}
		report := &statusReport{Replicas: control.ReadStatus(cmd.Context(), addresses)}
		err := examine(report.Replicas)
		if err != nil {
			report.Problem = err.Error()
		}
		return cmp.Or(out.print(report), err)
	}
	return cmd
}

// statusAddresses returns the addresses of all replicas of a configuration.
func statusAddresses(cfg *config.Config) []string {
	if len(cfg.HTTP.Peers) > 0 {
		return cfg.HTTP.Peers
	}
	host, port, _ := net.SplitHostPort(cfg.HTTP.Listen) // was validated
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return []string{net.JoinHostPort(host, port)}
}

// statusReport is the report of `bridge status`.
type statusReport struct {
	Replicas []control.Answer `json:"replicas"`
	Problem  string           `json:"problem,omitempty"`
}

// examine returns what is wrong, the most important first, in one line. It returns nil if nothing is wrong.
func examine(answers []control.Answer) error {
	var leaders, silent int
	var problems []string
	for _, a := range answers {
		if a.Status == nil {
			silent++
			continue
		}
		r := a.Replica
		found := r.NotReady
		if r.Role != control.Standby {
			leaders++
			found = append(found, r.Notes...)
		}
		for _, problem := range found {
			problems = append(problems, console.Clean(r.Name+": "+problem))
		}
	}
	if silent > 0 {
		problems = append([]string{fmt.Sprintf("%d of %d addresses do not answer", silent, len(answers))}, problems...)
	}
	code := exitPartly
	switch {
	case leaders == 0 && silent < len(answers):
		problems, code = append([]string{"no replica is the leader, so nothing is delivered"}, problems...), exitFailed
	case leaders == 0:
		code = exitFailed
	case leaders > 1:
		problems = append([]string{
			fmt.Sprintf("%d replicas are the leader; only the first one can write to the state log", leaders),
		}, problems...)
	}
	if len(problems) == 0 {
		return nil
	}
	return &exitError{errors.New(strings.Join(problems, "; ")), code}
}

// WriteTable implements report.
func (s *statusReport) WriteTable(w io.Writer, _ console.Style) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REPLICA\tROLE\tREADY\tEPOCH\tBEHIND\tSINCE\tVERSION\tADDRESS") // Flush returns the error
	for _, a := range s.Replicas {
		if a.Status == nil {
			fmt.Fprintf(table, "-\t-\t-\t-\t-\t-\t-\t%s: %s\n", a.Address, console.Clean(a.Error))
			continue
		}
		r, epoch, behind, ready := a.Replica, "-", "-", "no"
		if r.Epoch > 0 {
			epoch = strconv.FormatUint(r.Epoch, 10)
		}
		if r.BehindCommits != nil {
			behind = strconv.Itoa(*r.BehindCommits)
		}
		if r.Ready {
			ready = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", console.Clean(r.Name), console.Clean(string(r.Role)), ready,
			epoch, behind, r.Since.Local().Format(time.DateTime), console.Clean(r.Version), a.Address)
	}
	if len(s.Replicas) > 0 && s.Replicas[0].Status != nil && s.Replicas[0].Replica.TakeOver != nil {
		writeTakeOver(table, s.Replicas[0].Replica.TakeOver)
	}
	return table.Flush()
}

func writeTakeOver(w io.Writer, t *control.TakeOver) {
	why := map[string]string{
		string(election.Start):    "no replica was the leader",
		string(election.Released): "the previous leader has stopped",
		string(election.Expired):  "the previous leader did not renew the Lease",
	}
	fmt.Fprintf(w, "\nlast take-over: %s, %s\n", t.Began.Local().Format(time.DateTime),
		cmp.Or(why[t.Reason], console.Clean(t.Reason)))
	for _, step := range t.Steps {
		took := time.Duration(step.Seconds * float64(time.Second)).Round(time.Millisecond)
		fmt.Fprintf(w, "  %s\t%s\n", console.Clean(step.Name), took)
	}
}
