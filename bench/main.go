// Command bench measures the bridge, side by side with the floor (bench/floor): the cheapest program that one can think
// of, which hands the lines of the raw watch unread to the broker and promises nothing. `make bench` runs it.
//
// Both run as processes of their own, in turn, against the same servers on this machine, and what counts is the ratio
// of what they used: the machine cancels out. CPU is what the kernel accounts to the process, user and system, from the
// moment at which the load begins until the broker holds everything and the checkpoint is written.
//
// Scenarios (-scenario): replay, snapshot, churn, outage, many, grow, cel.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ran, err := helper(os.Args[1:])
	if !ran {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to do
	}
}

// bench is one run of the program.
type bench struct {
	bridgeBinary, floorBinary string
	scenarios, brokers        []string
	runs                      int
	quick                     bool   // a tenth of everything: to see whether it works
	profileDir                string // empty: no profiles
	resultsFile               string // empty: none
	dir                       string // of everything that is thrown away at the end
	tls, floorHTTP1           bool

	out    io.Writer
	report report
}

// scenario is one benchmark.
type scenario struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

func scenarios() []scenario {
	return []scenario{
		{"replay", replay},
		{"snapshot", snapshot},
		{"churn", churn},
		{"outage", outage},
		{"many", many},
		{"grow", grow},
		{"cel", cel},
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	b := &bench{out: out}
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&b.bridgeBinary, "bridge", "bin/bridge", "the bridge's binary")
	flags.StringVar(&b.floorBinary, "floor", "bin/floor", "the floor's binary")
	chosen := flags.String("scenario", strings.Join(names, ","), "what to measure")
	brokers := flags.String("brokers", jetStreamName+","+kafkaName, "with which brokers")
	flags.IntVar(&b.runs, "runs", 3, "runs of each program; the tables show medians")
	flags.BoolVar(&b.quick, "quick", false, "a tenth of the load, to see whether everything works")
	flags.StringVar(&b.profileDir, "profile", "", "write profiles of the bridge (CPU, allocations, heap) to this `folder`")
	flags.StringVar(&b.resultsFile, "results", "", "write the results to this `file`")
	temporary := flags.String("tmp", os.TempDir(), "`folder` for the data of the brokers and the bridge; it should lie on a disk")
	flags.BoolVar(&b.tls, "tls", false, "TLS, and so HTTP/2, for the list/watch server with nothing behind it too")
	flags.BoolVar(&b.floorHTTP1, "floor-http1", false, "the floor speaks HTTP/1.1 where there is TLS")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b.scenarios, b.brokers = strings.Split(*chosen, ","), strings.Split(*brokers, ",")
	for _, name := range b.scenarios {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	var err error
	if b.dir, err = os.MkdirTemp(*temporary, "deltabridge-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.profileDir != "" {
		if err := os.MkdirAll(b.profileDir, 0o755); err != nil {
			return err
		}
	}
	for _, s := range scenarios() {
		if !slices.Contains(b.scenarios, s.name) {
			continue
		}
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return b.finish()
}

// finish prints the report.
func (b *bench) finish() error {
	text := b.report.markdown()
	if b.quick {
		text = "**With -quick: a tenth of the load. These figures say whether everything works, and nothing else.**\n\n" + text
	}
	_, err := fmt.Fprint(b.out, "\n", text)
	if b.resultsFile != "" {
		err = errors.Join(err, os.WriteFile(b.resultsFile, []byte(b.facts()+text), 0o644))
	}
	return err
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// scaled is a size of the load: with -quick a tenth.
func (b *bench) scaled(n int) int {
	if b.quick {
		return n / 10
	}
	return n
}

// say tells the user what is going on.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }
