package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// ShuttingDown is the reason in Replica.NotReady of a process that is shutting down.
const ShuttingDown = "shutting down"

// Recent is how long the health of a sink is Lossy after it has delivered a gap event.
const Recent = 15 * time.Minute

// finding is what is to be said about a part.
type finding struct {
	health       Health
	text, remedy string
}

// Judge sets the verdict. All other fields must be set.
func (s *Status) Judge() {
	found := s.findings()
	slices.SortStableFunc(found, func(a, b finding) int { return b.health.Compare(a.health) })
	s.Verdict = Verdict{Health: Healthy, Text: "Everything is delivered."}
	if len(found) == 0 {
		return
	}
	worst := found[0]
	s.Verdict = Verdict{Health: worst.health, Text: strings.TrimRight(worst.text, ". "), Remedy: worst.remedy}
	switch more := len(found) - 1; {
	case more == 1:
		s.Verdict.Text += " (and 1 more problem)"
	case more > 1:
		s.Verdict.Text += fmt.Sprintf(" (and %d more problems)", more)
	}
	s.Verdict.Text += "."
}

// findings returns what is not in order.
func (s *Status) findings() (all []finding) {
	r, refused := &s.Replica, s.Configuration.Error
	switch {
	case slices.Contains(r.NotReady, ShuttingDown):
		return []finding{{Stopping, "The bridge is shutting down", ""}}
	case refused != nil && s.Configuration.Loaded.IsZero():
		return []finding{
			{Failing, "The configuration is refused, so the bridge has not started: " + refused.Text, refused.Remedy},
		}
	case r.Role == Standby && r.Ready:
		return append(s.sinkFindings(), finding{
			Unknown, "This replica is a standby that can take over; the leader knows whether everything is delivered",
			"run `bridge status`, which asks all replicas",
		})
	case r.Role == Standby:
		return append(s.sinkFindings(),
			finding{Waiting, "This standby cannot take over: " + strings.Join(r.NotReady, "; "), ""})
	}
	if refused != nil {
		all = append(all, finding{
			Failing, "The changed configuration was refused, and the earlier one stays in use: " + refused.Text, refused.Remedy,
		})
	}
	if s.Checkpoint != nil && s.Checkpoint.Problem != nil {
		p := s.Checkpoint.Problem
		all = append(all, finding{Failing, upper(p.Text), p.Remedy})
	}
	all = append(all, s.sinkFindings()...)
	all = append(all, s.sourceFindings()...)
	if len(all) == 0 && !r.Ready {
		all = append(all, finding{
			Waiting, "The bridge is not ready: " + strings.Join(r.NotReady, "; "),
			"if this lasts, read the log, and run `bridge doctor`",
		})
	}
	return all
}

// sinkFindings returns what is not in order with sinks. A standby has only those that are sent audit events.
func (s *Status) sinkFindings() (all []finding) {
	for n := range s.Sinks {
		if k := &s.Sinks[n]; k.Health != Healthy {
			all = append(all, k.finding(s.At))
		}
	}
	return all
}

// finding describes a sink whose health is not Healthy.
func (k *Sink) finding(at time.Time) finding {
	text, remedy := "Sink "+k.Name+" ", ""
	if k.Problem != nil {
		remedy = k.Problem.Remedy
	}
	switch {
	case !k.PausedSince.IsZero():
		text += "is paused since " + clock(k.PausedSince, at)
		remedy = "run `bridge resume " + k.Name + "`"
	case k.Problem != nil:
		text += "does not deliver"
		if !k.Problem.Since.IsZero() {
			text += " since " + clock(k.Problem.Since, at)
		}
		text += ": " + strings.TrimRight(k.Problem.Text, ". ")
	case k.Health == Lossy:
		return k.lossy(at)
	case k.Fuse != nil:
		text += "delivers less than the cluster changes"
		remedy = "check how long the broker takes to acknowledge an event, or send fewer events: see DeltabridgeLag in " +
			"docs/operations.md"
	default:
		text += "is not connected yet"
	}
	if k.Fuse != nil {
		text += "; " + k.Fuse.outlook()
	}
	return finding{k.Health, text, remedy}
}

// outlook says what happens if the outage lasts.
func (f *Fuse) outlook() string {
	if f.Seconds <= 0 {
		return "events may be lost already"
	}
	left := duration.HumanDuration(time.Duration(f.Seconds * float64(time.Second)))
	return "its events wait, and nothing is lost for at least " + left
}

func (k *Sink) lossy(at time.Time) finding {
	remedy := "run `bridge resync --sink " + k.Name + "`, which sends the present state of each object"
	if len(k.Gaps) == 0 || at.Sub(k.Gaps[0].At) > Recent {
		return finding{
			Lossy,
			fmt.Sprintf("Sink %s has dropped %d events, because its queue was full", k.Name, k.Dropped),
			remedy,
		}
	}
	g := k.Gaps[0]
	text := fmt.Sprintf("Sink %s was sent a gap event (%s) at %s: states of %s may be missing", k.Name, g.Reason,
		clock(g.At, at), g.Resource)
	if g.Reason == "relist" {
		text, remedy = text+", but no final states", "nothing is to be done, unless a consumer requires every state"
	}
	return finding{Lossy, text, remedy}
}

// sourceFindings returns one finding for all sources with the same health and remedy.
func (s *Status) sourceFindings() (all []finding) {
	type kind struct {
		health Health
		remedy string
		failed bool
	}
	counts, first := map[kind]int{}, []kind{}
	texts := map[kind]string{}
	for n := range s.Sources {
		source := &s.Sources[n]
		if source.Health == Healthy || source.Health == Idle {
			continue
		}
		k, text := kind{health: source.Health}, "the initial list is not complete yet"
		if p := source.Problem; p != nil {
			k.remedy, k.failed, text = p.Remedy, true, p.Text
		}
		if counts[k]++; counts[k] == 1 {
			first, texts[k] = append(first, k), source.Resource+"\x00: "+text
		}
	}
	for _, k := range first {
		more := ""
		if n := counts[k] - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		all = append(all, finding{k.health, strings.Replace(texts[k], "\x00", more, 1), k.remedy})
	}
	return all
}

// clock returns a time of the last hours without its date.
func clock(t, now time.Time) string {
	if now.Sub(t) < 12*time.Hour {
		return t.UTC().Format("15:04 UTC")
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

func upper(text string) string {
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
}
