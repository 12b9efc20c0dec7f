package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

var (
	duration = flag.Duration("chaos.duration", 90*time.Second, "for how long TestChaos begins new runs")
	lanes    = flag.Int("chaos.lanes", 2, "how many runs there are at once, each with a control plane of its own")
	seed     = flag.Uint64("chaos.seed", 1, "seed of the first run; 0: any. The next run has the next one")
	runs     = flag.Int("chaos.runs", scale.Of(2, 4), "how many runs each lane makes; 0: as many as there is time for")
	onKafka  = flag.String(
		"chaos.kafka",
		"no",
		"whether there are sinks that write to Kafka: yes, no, or auto: in the second lane",
	)
	shrink = flag.Int("chaos.shrink", 0, "how many runs may be made to shrink a scenario that failed")
	repeat = flag.Int("chaos.repeat", 1, "how often each scenario is played")
	keep   = flag.String("chaos.keep", "", "directory for the files of runs that failed")
	built  = flag.String("chaos.bridge", "", "the binary to test; empty: it is built")
)

// bridgeBinary is built once for all tests.
var bridgeBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	_ = os.Unsetenv("GOGC") // the bridge runs with the default; this process has read it
	dir, err := os.MkdirTemp("", "deltabridge-chaos-")
	if bridgeBinary = *built; err == nil && bridgeBinary == "" {
		bridgeBinary = filepath.Join(dir, "bridge")
		err = buildBridge(bridgeBinary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(cluster.Main(kafka.Main(m)), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir) // what is left is in the system's directory for such things
		os.Exit(code)
	}))
}

func buildBridge(path string, flags ...string) error {
	args := append([]string{"run", "-exec=cp", "-ldflags=-s -w"}, flags...) // unlike "go build", "go run" caches programs
	build := exec.Command("go", append(args, "github.com/deltabridge/deltabridge/cmd/bridge", path)...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	return build.Run()
}

// TestChaos plays random scenarios and judges what arrived.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	end := time.Now().Add(*duration)
	for lane := range *lanes {
		t.Run(fmt.Sprintf("lane=%d", lane), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lane, bridgeBinary, nil)
			w.keepDir = *keep
			o := Options{Disk: CanMount()}
			if *onKafka == "yes" || *onKafka == "auto" && lane == 1 {
				w.startKafka()
				o.Kafka = true
			}
			began := time.Now()
			for n := 0; n < *runs || *runs == 0 && time.Now().Before(end); n++ {
				seed := first + uint64(n**lanes+lane)
				for range *repeat {
					if failed := w.one(t, Generate(seed, o)); failed && *runs == 0 {
						return
					}
				}
			}
			t.Logf("%d runs in %s", w.runs, time.Since(began).Round(time.Second))
		})
	}
}

// TestReloads is TestChaos with configurations that change while the bridge runs.
func TestReloads(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	w := newWorld(t, 0, bridgeBinary, nil)
	w.keepDir = *keep
	o := Options{Reloads: true}
	if *onKafka == "yes" {
		w.startKafka()
		o.Kafka = true
	}
	for n := range *runs {
		for range *repeat {
			w.one(t, Generate(*seed+uint64(n), o))
		}
	}
}

// shrinkQuiet is settleQuiet while a scenario is shrunk: most runs then lack something, and wait for it.
const shrinkQuiet = 10 * time.Second

// standstill is for how long this machine may do nothing for the tests: the judge has to know how late the bridge can be.
const standstill = time.Second

// playSteadily plays a scenario, and again if it has violations and this machine stood still in it.
func (w *world) playSteadily(t *testing.T, s Scenario) (violations []Violation, log []string, err error) {
	t.Helper()
	for try := 1; ; try++ {
		longest := watchClock(t.Context())
		violations, log, err = w.play(t.Context(), s)
		stood := longest()
		if err != nil || len(violations) == 0 || stood < standstill || try == 5 {
			return violations, log, err
		}
		t.Logf("seed %d: %d violations do not count, because this machine stood still for %s:\n%s",
			s.Seed, len(violations), stood, describe(violations))
	}
}

// watchClock returns a function that ends it, and returns the longest time in which this process did not run.
func watchClock(ctx context.Context) (longest func() time.Duration) {
	const every = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan time.Duration, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		longest := time.Duration(0)
		for last := time.Now(); ctx.Err() == nil; <-tick.C {
			now := time.Now()
			longest, last = max(longest, now.Sub(last)-every), now
		}
		result <- longest
	}()
	return func() time.Duration { cancel(); return <-result }
}

// one plays a scenario, and reports and shrinks it if it fails.
func (w *world) one(t *testing.T, s Scenario) (failed bool) {
	t.Helper()
	began := time.Now()
	violations, log, err := w.playSteadily(t, s)
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", s.Seed, err, strings.Join(log, "\n"))
	}
	t.Logf(
		"seed %d: %d steps in %s, %d violations, %s",
		s.Seed,
		len(s.Steps),
		time.Since(began).Round(time.Second),
		len(violations),
		log[len(log)-1],
	)
	if len(violations) == 0 {
		return false
	}
	t.Errorf(
		"seed %d has violations. Replay it with -chaos.seed %d -chaos.runs 1 -chaos.lanes 1 -chaos.kafka %s\n%s\n%s\n%s",
		s.Seed,
		s.Seed,
		map[bool]string{true: "yes", false: "no"}[s.Kafka],
		s,
		strings.Join(log, "\n"),
		describe(violations),
	)
	if *shrink > 0 {
		defer func(d time.Duration) { w.quiet = d }(w.quiet)
		w.quiet = shrinkQuiet
		found := violations // of the smallest scenario so far: it need not fail each time
		small := Shrink(s, *shrink, func(smaller Scenario) bool {
			again, played, err := w.play(t.Context(), smaller)
			if err != nil || !sharesClass(again, violations) {
				return false
			}
			found, log = again, played
			return true
		})
		t.Errorf("shrunk to\n%s\n%s\n%s", small, strings.Join(log, "\n"), describe(found))
	}
	return true
}

func describe(violations []Violation) string {
	counts, lines := map[Class]int{}, []string(nil)
	for _, v := range violations {
		if counts[v.Class]++; counts[v.Class] <= 6 {
			lines = append(lines, v.String())
		}
	}
	return fmt.Sprintf("%v\n%s", counts, strings.Join(lines, "\n"))
}

func sharesClass(a, b []Violation) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Class == y.Class {
				return true
			}
		}
	}
	return false
}
