package chaos

import (
	"slices"
	"strconv"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Shrink looks for a smaller scenario that still fails: fails is asked at most budget times. It leaves out steps,
// halves writes, and leaves out sinks.
func Shrink(s Scenario, budget int, fails func(Scenario) bool) Scenario {
	try := func(smaller Scenario) bool {
		if budget == 0 {
			return false
		}
		budget--
		if !fails(smaller) {
			return false
		}
		s = smaller
		return true
	}
	for changed := true; changed && budget > 0; {
		changed = false
		for size := max(1, len(s.Steps)/2); size > 0 && budget > 0; size /= 2 {
			for at := 0; at+size <= len(s.Steps); {
				smaller := s
				smaller.Steps = slices.Delete(slices.Clone(s.Steps), at, at+size)
				if try(smaller) {
					changed = true
				} else {
					at += size
				}
			}
		}
		for n := len(s.Config.Sinks) - 1; n >= 0 && len(s.Config.Sinks) > 1; n-- {
			changed = try(s.without(s.Config.Sinks[n].Dest())) || changed
		}
		for n := range s.Steps {
			if s.Steps[n].Count >= 4 {
				smaller := s
				smaller.Steps = slices.Clone(s.Steps)
				smaller.Steps[n].Count /= 2
				changed = try(smaller) || changed
			}
		}
	}
	return s
}

// without is the scenario without a destination.
func (s Scenario) without(dest string) Scenario {
	is := func(x Sink) bool { return x.Dest() == dest }
	s.Config = s.Config.Clone()
	s.Config.Sinks = slices.DeleteFunc(s.Config.Sinks, is)
	s.Steps = slices.DeleteFunc(slices.Clone(s.Steps), func(step Step) bool { return step.Sink == dest })
	for n := range s.Steps {
		if s.Steps[n].Config != nil {
			c := s.Steps[n].Config.Clone()
			c.Sinks = slices.DeleteFunc(c.Sinks, is)
			s.Steps[n].Config = &c
		}
	}
	return s
}
