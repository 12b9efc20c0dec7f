package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
)

// configVariable is the environment variable that contains the default of --config. The chart sets the variable to the
// path of the running bridge's configuration.
const configVariable = "DELTABRIDGE_CONFIG"

// configFlag adds --config to the flags of a command.
func configFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVarP(path, "config", "c", os.Getenv(configVariable),
		"configuration `file` (default: the value of "+configVariable+")")
}

// loadConfig reads the configuration file that --config specifies. It returns an error if path is empty.
func loadConfig(path string) (*config.Config, error) {
	if path == "" {
		return nil, errors.New("--config is required")
	}
	return config.Load(path)
}

// loadConfigOrDefault reads a configuration file. If path is empty, it returns the default configuration.
func loadConfigOrDefault(path string) (*config.Config, error) {
	if path == "" {
		return config.Default(), nil
	}
	return config.Load(path)
}

// selectSinks returns the sink with the given name. If name is empty, it returns all sinks.
func selectSinks(cfg *config.Config, name string) ([]config.Sink, error) {
	if name == "" {
		return cfg.Sinks, nil
	}
	n := slices.IndexFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == name })
	if n < 0 {
		return nil, fmt.Errorf("--sink %s: there is no such sink; use one of %s", name, sinkNames(cfg.Sinks))
	}
	return cfg.Sinks[n : n+1], nil
}

func sinkNames(sinks []config.Sink) string {
	names := make([]string, len(sinks))
	for n := range sinks {
		names[n] = sinks[n].Name
	}
	return strings.Join(names, ", ")
}

// checkOutput returns an error if the value of --output is not one of the allowed values.
func checkOutput(value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--output %s: must be %s", value, strings.Join(allowed, " or "))
}

// report is what a command prints as a table or as JSON.
type report interface {
	WriteTable(w io.Writer, style console.Style) error
}

// printReport prints a report as a table or, if output is json, as JSON.
func printReport(w io.Writer, r report, output string) error {
	if output == "json" {
		return console.WriteJSON(w, r)
	}
	return r.WriteTable(w, consoleStyle(w))
}

// untilSignal returns a context that is canceled by the first SIGINT or SIGTERM. A second signal ends the process.
func untilSignal(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // restores the default action of the signals
	return ctx
}

// closeTimeout is the maximum time for closing the connections of a command.
const closeTimeout = 5 * time.Second

// closeDestination closes a destination's connections, even if ctx has ended.
func closeDestination(ctx context.Context, d *assemble.Destination) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = d.Close(last) // an error on close does not change the result of the command
}

// consoleStyle returns the style of the output. It has colors if w is a terminal that supports them.
func consoleStyle(w io.Writer) console.Style {
	return console.Style{Color: isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
