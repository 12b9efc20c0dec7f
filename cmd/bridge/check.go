package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/doctor"
	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

func newCheckCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration without running it",
		Long: "check reports all errors in the file with their line and column. It also fails if the state directory\n" +
			"exists on this machine and contains events of a sink that is not in the file.\n\n" +
			"The files that the configuration names, such as certificates, need not exist on this machine: check\n" +
			"prints a note for each that does not, and checks the others. It also prints a note for each environment\n" +
			"variable that the configuration uses, and a warning for settings that are valid, but whose effects on\n" +
			"consumers may be unexpected. It exits with 78 if the configuration is invalid.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	out := newOutput(cmd, stdout, formatText, formatJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		r := checkReport{}
		r.File, _, _ = file.find() // read returns the error
		cfg, notes, err := file.read(true)
		if err == nil {
			err = orphanedEvents(cfg)
		}
		r.MissingFiles, r.Variables, r.Warnings = notes.MissingFiles, notes.Variables, notes.Warnings
		if err == nil {
			r.Valid = true
		} else if r.Mistakes = strictyaml.Mistakes(err); r.Mistakes == nil {
			r.Error = err.Error()
		}
		return errors.Join(err, out.print(&r))
	}
	return cmd
}

// checkReport is the result of `bridge check`.
type checkReport struct {
	File         string                `json:"file"`
	Valid        bool                  `json:"valid"`
	Mistakes     []*strictyaml.Mistake `json:"mistakes,omitempty"`
	Error        string                `json:"error,omitempty"` // an error that has no position in the file
	MissingFiles []*strictyaml.Mistake `json:"missingFiles,omitempty"`
	Variables    []strictyaml.Variable `json:"variables,omitempty"`
	Warnings     []*strictyaml.Mistake `json:"warnings,omitempty"`
}

// WriteTable writes nothing for an invalid configuration, because the command returns its error.
func (r *checkReport) WriteTable(w io.Writer, _ console.Style) error {
	if !r.Valid {
		return nil
	}
	var text strings.Builder
	for _, m := range r.Warnings {
		fmt.Fprintf(&text, "warning: %v\n", m)
	}
	for _, m := range r.MissingFiles {
		fmt.Fprintf(&text, "note: %v\n", m)
	}
	for _, v := range r.Variables {
		state := "the environment variable " + v.Name + " is set"
		if !v.Set {
			state = "the environment variable " + v.Name + " is not set or empty, so its default applies"
		}
		fmt.Fprintf(&text, "note: %s:%d:%d: %s: %s\n", r.File, v.Line, v.Column, v.Path, state)
	}
	_, err := fmt.Fprintf(w, "%s%s: ok\n", text.String(), r.File)
	return err
}

// orphanedEvents returns an error if the state directory contains events of sinks that are not in the configuration.
func orphanedEvents(cfg *config.Config) error {
	if remedy, err := doctor.OrphanedEvents(cfg); err != nil {
		return &exitError{fmt.Errorf("%w; %s", err, remedy), exitConfig}
	}
	return nil
}
