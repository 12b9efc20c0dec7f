package main

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// The values of --output. The first three are for people: a command has one of them.
const (
	formatLine  = "line" // one line per event
	formatTable = "table"
	formatText  = "text"
	formatJSON  = "json"
)

// report is what a command prints.
type report interface {
	// WriteTable writes the report for people.
	WriteTable(w io.Writer, style console.Style) error
}

// output prints the reports of a command in the format of --output.
type output struct {
	w      io.Writer
	format choice
}

// newOutput adds --output to a command. The first format is the default.
func newOutput(cmd *cobra.Command, w io.Writer, formats ...string) *output {
	o := &output{w: w, format: choice{formats[0], formats}}
	cmd.Flags().VarP(&o.format, "output", "o", "`format` of the output: "+strictyaml.OrList(formats))
	completeWords(cmd, "output", formats...)
	return o
}

// completeWords makes the shell complete the words as the value of a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists
}

// print prints a report. If a command prints several, each is a document of its own.
func (o *output) print(r report) error {
	if o.format.value == formatJSON {
		return console.WriteJSON(o.w, r)
	}
	return r.WriteTable(o.w, consoleStyle(o.w))
}

// choice is a flag whose value is one of a few words. It implements pflag.Value.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }

func (c *choice) Type() string { return "word" }

func (c *choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		return errors.New("must be " + strictyaml.OrList(c.allowed))
	}
	c.value = value
	return nil
}

// consoleStyle returns the style of the output. It has colors if w is a terminal that supports them.
func consoleStyle(w io.Writer) console.Style {
	return console.Style{Color: isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
