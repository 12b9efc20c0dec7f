package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/pattern"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Validate reports invalid values. The values must already have the correct type.
func (c *Config) Validate(at *strictyaml.Section) {
	if c.Cluster == "" || len(validation.IsValidLabelValue(c.Cluster)) > 0 {
		at.Report("cluster", strictyaml.Quote(c.Cluster)+" is not a valid cluster name",
			"use at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit")
	}
	at.NotEmpty("state.path", c.State.Path, "write ./state")
	at.Address("http.listen", c.HTTP.Listen, false, "write :8080 or 127.0.0.1:8080")
	for i, peer := range c.HTTP.Peers {
		at.Address(fmt.Sprintf("http.peers[%d]", i), peer, true, "write the name and the port of a headless Service")
	}
	for i := range c.Watch {
		c.Watch[i].validate(at.At(fmt.Sprintf("watch[%d]", i)))
	}
	validateOverlaps(at, c.Watch)
	if path := c.RedactionKeyFile; path != "" {
		if info, err := os.Stat(path); err == nil && info.Size() < redact.MinKey {
			problem := fmt.Sprintf("%q has %d bytes, but the key requires at least %d", path, info.Size(), redact.MinKey)
			at.Report("redactionKeyFile", problem, "create a key with openssl rand -hex 32")
		}
	}
	for i := range c.Redact {
		c.Redact[i].validate(at.At(fmt.Sprintf("redact[%d]", i)))
	}
	c.validateState(at)
	c.validateAudit(at)
	names := map[string]int{}
	for i := range c.Sinks {
		key, name := fmt.Sprintf("sinks[%d]", i), c.Sinks[i].Name
		if !at.Fine(key) {
			continue
		}
		c.Sinks[i].validate(at.At(key))
		if first, ok := names[name]; ok && name != "" {
			at.Report(key+".name", fmt.Sprintf("%q is also the name of sinks[%d]", name, first), "choose another name")
		} else {
			names[name] = i
		}
	}
	validateConflicts(at, c.Sinks)
}

func (w *Watch) validate(at *strictyaml.Section) {
	if !at.Fine("") {
		return
	}
	validatePatterns(at, "resources", w.Resources)
	validatePatterns(at, "exclude", w.Exclude)
	validateNamespaces(at, w.Namespaces)
	if _, err := labels.Parse(w.LabelSelector); err != nil {
		at.Report("labelSelector", oneLine(err), "")
	}
	if _, err := fields.ParseSelector(w.FieldSelector); err != nil {
		at.Report("fieldSelector", oneLine(err), "")
	}
}

func (r *Redact) validate(at *strictyaml.Section) {
	if !at.Fine("") {
		return
	}
	validatePatterns(at, "resources", r.Resources)
	for i, text := range r.Paths {
		if _, err := redact.ParsePath(text); err != nil {
			at.Report(fmt.Sprintf("paths[%d]", i), strictyaml.Quote(text)+" "+oneLine(err), "")
		}
	}
}

func validatePatterns(at *strictyaml.Section, key string, texts []string) {
	for i, text := range texts {
		if _, err := pattern.ParseResource(text); err != nil {
			at.Report(fmt.Sprintf("%s[%d]", key, i), strictyaml.Quote(text)+": "+oneLine(err), "")
		}
	}
}

func validateNamespaces(at *strictyaml.Section, entries []string) {
	for i, entry := range entries {
		if err := new(pattern.Namespaces).Add(entry); err != nil {
			at.Report(fmt.Sprintf("namespaces[%d]", i), oneLine(err), "")
		}
	}
}

// validateFilters compiles the filters of a sink, and reports mistakes under the key of each filter.
func (s *Sink) validateFilters(at *strictyaml.Section) {
	mistakes := s.compileFilters()
	problems := map[string][]string{}
	for _, m := range mistakes {
		problem := oneLine(m.Err)
		if m.Line > 0 {
			problem = fmt.Sprintf("line %d, column %d of the expression: %s", m.Line, m.Column, problem)
		}
		key := fmt.Sprintf("filters[%d].%s", m.Rule, m.Field)
		problems[key] = append(problems[key], problem)
	}
	for key, all := range problems {
		remedy := "" // the example of the key
		switch isWhen := strings.HasSuffix(key, ".when"); {
		case isWhen && s.IsAudit():
			remedy = "write a CEL expression with the variable event"
		case isWhen:
			remedy = "write a CEL expression with the variables object, old and operation"
		case all[0] == filter.ErrOnChanges.Error():
			remedy = "remove it; filters of audit events have resources, namespaces and when"
		}
		at.Report(key, strings.Join(all, "; "), remedy)
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// validateConflicts reports sinks, and places of control events and dead letters, that conflict with each other.
func validateConflicts(at *strictyaml.Section, all []Sink) {
	type place struct {
		at          *strictyaml.Section
		destination sinks.Config
		sink        string
	}
	var events, control, letters []place
	for i := range all {
		s, sink := &all[i], fmt.Sprintf("sinks[%d]", i)
		kind, destination := s.given()
		if destination == nil || !at.Fine(sink+"."+kind) {
			continue
		}
		events = append(events, place{at.At(sink + "." + kind), destination, sink})
		there := at.At(sink + ".controlEvents")
		if c := s.ControlEvents; c != nil && there.Fine("") && isPlace(there) {
			if to := destination.Control(c); to != nil {
				control = append(control, place{there, to, sink})
			}
		}
		there = at.At(sink + ".deadLetter")
		if d := s.DeadLetter; d != nil && isPlace(there) {
			if destination = destination.Letters(s.Name, d); destination != nil {
				letters = append(letters, place{there, destination, sink})
			}
		}
	}
	conflicts := func(p place, others []place) bool { // Only the first conflict is reported.
		return slices.ContainsFunc(others, func(o place) bool { return p.destination.Conflict(p.at, o.destination, o.sink) })
	}
	for i, p := range events {
		_ = conflicts(p, events[:i])
	}
	others := slices.Clone(events)
	for _, p := range append(control, letters...) {
		if !conflicts(p, others) {
			others = append(others, p)
		}
	}
}

// isPlace reports whether the keys of a place on a sink's servers have no mistake.
func isPlace(at *strictyaml.Section) bool {
	return at.Fine("topic") && at.Fine("subject") && at.Fine("stream")
}
