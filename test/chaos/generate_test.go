package chaos

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGenerateIsPure: a seed is a scenario, and none is empty.
func TestGenerateIsPure(t *testing.T) {
	actions := map[Action]int{}
	for seed := range uint64(800) {
		o := Options{Kafka: seed%2 == 0, Disk: seed%3 == 0, Reloads: seed%5 == 0}
		s := Generate(seed, o)
		if diff := cmp.Diff(s, Generate(seed, o)); diff != "" {
			t.Fatal(diff)
		}
		if len(s.Steps) < 3 || !strings.Contains(s.String(), "start") {
			t.Errorf("seed %d:\n%s", seed, s)
		}
		for _, step := range s.Steps {
			actions[step.Action]++
			if step.Config != nil && len(step.Config.Sinks) == 0 {
				t.Errorf("seed %d: no sink is left", seed)
			}
			if step.Config != nil {
				checkSelectors(t, step.Config)
			}
		}
		checkSelectors(t, &s.Config)
	}
	for _, a := range []Action{Write, Kill, Term, Start, Configure, Reload, Away, Hang, Late, Cut, Back, Forget, RestartAPI, HangAPI, BackAPI, FillDisk, FreeDisk, Lose, Resync, PauseSink, ResumeSink, Label, Settle} {
		if actions[a] < 20 {
			t.Errorf("%s was drawn %d times", a, actions[a])
		}
	}
}

// checkSelectors fails if two entries of watch select the same objects with different selectors, which is not allowed.
func checkSelectors(t *testing.T, c *Config) {
	t.Helper()
	for n, w := range c.Watch {
		for _, o := range c.Watch[:n] {
			shares := func(of, other []string) bool {
				return len(of) == 0 || len(other) == 0 ||
					slices.ContainsFunc(of, func(s string) bool { return slices.Contains(other, s) })
			}
			if w.Team != o.Team && shares(w.Resources, o.Resources) && shares(w.Namespaces, o.Namespaces) {
				t.Errorf("%s", c)
			}
		}
	}
}

// TestShrink: what makes a scenario fail is all that is left of it.
func TestShrink(t *testing.T) {
	fails := func(s Scenario) bool {
		at := slices.IndexFunc(s.Steps, func(x Step) bool { return x.Action == Kill || x.Action == Term })
		return at >= 0 && slices.ContainsFunc(s.Steps[at:], func(x Step) bool { return x.Action == Forget }) &&
			s.Config.At("s1") != nil
	}
	found := 0
	for seed := uint64(0); found < 20; seed++ {
		s := Generate(seed, Options{})
		if !fails(s) {
			continue
		}
		found++
		small := Shrink(s, 200, fails)
		if !fails(small) || len(small.Steps) != 2 || len(small.Config.Sinks) != 1 {
			t.Errorf("seed %d was shrunk to\n%s", seed, small)
		}
	}
}
