package nats

import (
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// subjectProblem returns what is wrong with a subject of a stream; empty if nothing is.
func subjectProblem(subject string) string {
	switch {
	case !server.IsValidSubject(subject):
		return "is not a valid subject"
	case overlap(subject, "$JS.API.>"):
		return "overlaps with the subjects of JetStream itself"
	}
	return ""
}

// covers reports whether every subject that matches pattern matches filter too. Both may contain the wildcards * and >.
func covers(filter, pattern string) bool { return server.SubjectMatchesFilter(pattern, filter) }

// overlap reports whether some subject matches both. Both may contain the wildcards * and >.
func overlap(a, b string) bool { return server.SubjectsCollide(a, b) }

// overlapping returns the index of the first of the patterns that overlaps with subject; -1 if none does.
func overlapping(subject string, patterns []string) int {
	return slices.IndexFunc(patterns, func(p string) bool { return overlap(subject, p) })
}
