// Command bench compares the bridge with the floor (bench/floor), the cheapest conceivable program for the same task:
// it sends the unparsed lines of a watch to the broker, without any guarantees. `make bench` runs the benchmarks.
//
// Both run in turn, as separate processes, against the same servers on this machine. The result is the ratio of the
// resources that they use, which hardly depends on the machine. CPU is the user and system time of the process from the
// start of the load until the broker has all messages and the checkpoint is written.
//
// Scenarios (-scenario): replay, snapshot, churn, outage, kill, start, many, grow, variations, replicas, audit.
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

// bench is one run of this program.
type bench struct {
	bridgeBinary, floorBinary string
	scenarios, brokers        []string
	runs                      int
	scale                     float64 // factor of the load: less than 1 tests the benchmarks
	profileDir                string  // empty disables profiles
	resultsFile               string  // empty writes no file
	dir                       string  // temporary directory, removed at the end
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
		{"same", sameMessages},
		{"snapshot", snapshot},
		{"churn", churn},
		{"outage", outage},
		{"kill", kill},
		{"start", coldStart},
		{"many", many},
		{"grow", grow},
		{"variations", variations},
		{"replicas", replicas},
		{"audit", audit},
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
	flags.Float64Var(
		&b.scale,
		"scale",
		1,
		"`factor` of the load; with another one than 1, nothing is compared with bounds",
	)
	flags.StringVar(
		&b.profileDir,
		"profile",
		"",
		"write profiles of the bridge (CPU, allocations, heap) to this `directory`",
	)
	flags.StringVar(&b.resultsFile, "results", "", "write the results to this `file`")
	temporary := flags.String(
		"tmp",
		os.TempDir(),
		"`directory` for the data of the brokers and the bridge; it should be on a disk",
	)
	flags.BoolVar(&b.tls, "tls", false, "use TLS, and so HTTP/2, for the simulated API server too")
	flags.BoolVar(&b.floorHTTP1, "floor-http1", false, "the floor uses HTTP/1.1 with TLS servers")
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
	if b.scale != 1 {
		text = fmt.Sprintf("**With -scale=%g: another load than the tables say.**\n\n", b.scale) + text
	}
	_, err := fmt.Fprint(b.out, "\n", text)
	if b.resultsFile != "" {
		err = errors.Join(err, os.WriteFile(b.resultsFile, []byte(b.facts()+text), 0o644))
	}
	return err
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// scaled returns a size of the load.
func (b *bench) scaled(n int) int { return int(float64(n) * b.scale) }

// say prints a line about the progress.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }
