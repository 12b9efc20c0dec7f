package nats

import (
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// subjectProblem returns why a subject can't be a subject of a stream. It returns an empty string if the subject is
// valid.
func subjectProblem(subject string) string {
	switch {
	case !server.IsValidSubject(subject):
		return "is not a valid subject"
	case overlap(subject, "$JS.API.>"):
		return "overlaps with the subjects of JetStream itself"
	}
	return ""
}

// covers reports whether every subject that matches pattern also matches filter. Both may contain the wildcards * and
// >.
func covers(filter, pattern string) bool { return server.SubjectMatchesFilter(pattern, filter) }

// overlap reports whether at least one subject matches both a and b. Both may contain the wildcards * and >.
func overlap(a, b string) bool { return server.SubjectsCollide(a, b) }

// overlapping returns the index of the first pattern that overlaps with subject. It returns -1 if none does.
func overlapping(subject string, patterns []string) int {
	return slices.IndexFunc(patterns, func(p string) bool { return overlap(subject, p) })
}
