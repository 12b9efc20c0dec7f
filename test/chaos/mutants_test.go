//go:build chaosmutants

package chaos

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	mutants = flag.String(
		"chaos.mutants",
		"",
		"which mutants TestMutants looks for: names with commas between them, or all",
	)
	mutantLimit = flag.Duration("chaos.mutant-limit", 10*time.Minute, "within what time each mutant has to be found")
)

// Mutants are the ways in which a bridge that is built with the tag chaosmutants can be broken, and what each is.
func Mutants() [][2]string {
	return [][2]string{
		{"settle-unsent", "an event counts as delivered whatever the destination says"},
		{"no-spill-at-end", "what waits in memory at the end is not written to disk"},
		{"lose-spilled", "one of sixteen events that were written to disk is not read back"},
		{"reorder", "two events of one object are exchanged"},
		{"no-leave", "an object that stops passing the filter is not sent as left"},
		{"no-leave-on-change", "the same, where the filter changed"},
		{"position-early", "the position in the destination is ahead of what is settled"},
		{"no-gap", "a list after a lost history is not announced"},
		{"no-missed-deletions", "what a list lacks is not deleted"},
		{"rows-early", "rows of the checkpoint are ahead of what is settled"},
		{"watermark-early", "a sink's watermark is ahead of what is settled"},
		{"uncounted-drops", "a gap event does not count what was dropped"},
		{"merge-deletions-away", "a deletion is lost where waiting events are merged"},
		{"old-content", "an update is sent with the content of the state before"},
		{"no-read-back", "what an earlier process wrote is sent again"},
		{"no-fence", "Kafka takes batches of earlier processes"},
		{"progress-early", "progress events cover what still waits"},
		{"debounce-lost", "an update that waits is sent with the state that was the first to wait"},
		{"debounce-settled", "an update that waits counts as delivered"},
		{"relabel-lost", "objects neither enter nor leave when the labels of their namespace change"},
		{"no-expected-sequence", "in a latest-state stream, an older state can replace a newer one"},
	}
}

// TestMutants: random scenarios find each way of breaking the bridge.
func TestMutants(t *testing.T) {
	if *mutants == "" {
		t.Skip("takes up to ten minutes for each mutant: -chaos.mutants all")
	}
	binary := *built
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "bridge")
		if err := buildBridge(binary, "-tags", "chaosmutants"); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, 0, binary, nil)
	w.startKafka() // JetStream drops most repetitions, and knows no fences
	o := Options{Disk: CanMount(), Kafka: true}
	w.quiet = 10 * time.Second // most mutants lose something
	clean := map[uint64]bool{}
	var report []string
	for _, m := range Mutants() {
		if *mutants != "all" && !strings.Contains(","+*mutants+",", ","+m[0]+",") {
			continue
		}
		line := w.hunt(t, m, clean, o)
		t.Log(line)
		report = append(report, line)
	}
	t.Logf("mutants:\n%s", strings.Join(report, "\n"))
}

// hunt plays scenarios until one finds the mutant: it fails with it, and not without. clean says which scenarios fail
// without.
func (w *world) hunt(t *testing.T, m [2]string, clean map[uint64]bool, o Options) string {
	t.Helper()
	began := time.Now()
	for n := 1; ; n++ {
		seed := *seed + uint64(n)
		if passes, known := clean[seed]; known && !passes {
			continue
		}
		violations := w.mutated(t, seed, o, m[0])
		took := time.Since(began).Round(time.Second)
		if len(violations) > 0 {
			if _, known := clean[seed]; !known {
				clean[seed] = len(w.mutated(t, seed, o, "")) == 0 && len(w.mutated(t, seed, o, "")) == 0 // timing counts
			}
			if !clean[seed] {
				t.Logf("seed %d fails without a mutant as well", seed)
				continue
			}
			return fmt.Sprintf("%-28s found after %s, run %d, seed %d: %s", m[0], took, n, seed, violations[0])
		}
		if took > *mutantLimit {
			t.Errorf("%s (%s) was not found in %d runs", m[0], m[1], n)
			return fmt.Sprintf("%-28s NOT FOUND in %s, %d runs", m[0], took, n)
		}
	}
}

// mutated plays a scenario on a bridge that is broken in one way; with no name, on one that is not.
func (w *world) mutated(t *testing.T, seed uint64, o Options, name string) []Violation {
	t.Helper()
	w.env = []string{"DELTABRIDGE_MUTANT=" + name}
	violations, log, err := w.play(t.Context(), Generate(seed, o))
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(log, "\n"))
	}
	return violations
}
