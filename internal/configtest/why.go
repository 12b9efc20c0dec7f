package configtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/explain"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// whyNot returns why a sink was sent nothing about a change, as lines.
func (p *player) whyNot(s *story, sink string, c *change) (lines []string, err error) {
	lines, covered, err := p.coverage(s, c)
	if !covered || err != nil {
		return lines, err
	}
	verdicts, err := p.explain(p.watches(c), sink, c)
	lines = nil
	for _, v := range verdicts {
		if !v.Sends {
			lines = append(lines, refusal(v))
		}
	}
	return lines, err
}

// whySent returns which filter of a sink passes a change; empty if the sink has no filters.
func (p *player) whySent(sink string, c *change) (string, error) {
	i := p.watches(c)
	if i == nil {
		return "", nil
	}
	verdicts, err := p.explain(i, sink, c)
	n := slices.IndexFunc(verdicts, func(v filter.Verdict) bool { return v.Sends })
	if n < 0 {
		return "", err
	}
	return fmt.Sprintf("filters[%d] passes it", verdicts[n].Rule), nil
}

// watches returns the informer that receives a change, or nil if there is none.
func (p *player) watches(c *change) *informer.Informer {
	for _, i := range p.informers {
		if !i.Auxiliary() && (selects(i.Source(), c.resource, c.old) || selects(i.Source(), c.resource, c.now)) {
			return i
		}
	}
	return nil
}

// coverage returns whether the object of a change is watched, before or after the change, and for each entry of `watch`
// why not.
func (p *player) coverage(s *story, c *change) (why []string, covered bool, err error) {
	n := slices.IndexFunc(s.served, func(r discovery.Served) bool { return r.GroupResource == c.resource.GroupResource() })
	for _, state := range []state{c.old, c.now} {
		if state == nil {
			continue
		}
		raw, err := state.MarshalJSON()
		if err != nil {
			return nil, false, err
		}
		o, err := object.New(raw)
		if err != nil {
			return nil, false, err
		}
		entries, err := explain.Coverage(p.cfg, s.served[n], o)
		if err != nil {
			return nil, false, err
		}
		why = nil
		for _, w := range entries {
			text := w.Why
			if fields := p.cfg.Watch[w.Entry].FieldSelector; w.Covers && !selectsFields(fields, state) {
				text = "the fieldSelector " + fields + " does not select it"
			} else if w.Covers {
				covered = true
			}
			why = append(why, fmt.Sprintf("watch[%d]: %s", w.Entry, text))
		}
	}
	return why, covered && p.watches(c) != nil, nil
}

// explain returns the decisions of a sink's filters about a change.
func (p *player) explain(i *informer.Informer, sink string, c *change) ([]filter.Verdict, error) {
	var old, now *object.Object
	var err error
	if c.old != nil {
		old, err = p.read(i, c.old)
	}
	if c.now != nil && err == nil {
		now, err = p.read(i, c.now)
	}
	if err != nil {
		return nil, err
	}
	operation := event.Updated
	switch {
	case old == nil:
		operation = event.Added
	case now == nil:
		operation, old, now = event.Deleted, nil, old
	}
	return p.filters[sink].Explain(i.Resource(), operation, old, now), nil
}

// refusal describes the conditions of a filter that do not hold.
func refusal(v filter.Verdict) string {
	var conditions []string
	for _, c := range v.Conditions {
		if c.Holds {
			continue
		}
		text := c.Field + " " + c.Text
		if c.Found != "" {
			text += " (found: " + c.Found + ")"
		}
		conditions = append(conditions, text)
	}
	name := fmt.Sprintf("filters[%d]", v.Rule)
	switch v.State {
	case "before":
		name += ", previous state"
	case "now":
		name += ", new state"
	}
	return name + ": " + strings.Join(conditions, "; ")
}
