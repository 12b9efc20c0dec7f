package nats

import (
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// subjectProblem says what is wrong with a subject of a stream; empty if nothing is.
func subjectProblem(subject string) string {
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return "has an empty token"
		case token == ">" && i < len(tokens)-1:
			return "has > before its end"
		case token != ">" && token != "*" && strings.ContainsFunc(token, isSpaceOrWildcard):
			return "has a space or a wildcard inside of a token"
		}
	}
	if overlap(subject, "$JS.API.>") {
		return "overlaps with the subjects of JetStream itself"
	}
	return ""
}

func isSpaceOrWildcard(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }

// covers reports whether every subject that matches pattern matches filter too. Both may hold the wildcards * and >.
func covers(filter, pattern string) bool { return server.SubjectMatchesFilter(pattern, filter) }

// overlap reports whether some subject matches both. Both may hold the wildcards * and >.
func overlap(a, b string) bool { return server.SubjectsCollide(a, b) }

// overlapping is the index of the first of the patterns that overlaps with subject; -1 if none does.
func overlapping(subject string, patterns []string) int {
	return slices.IndexFunc(patterns, func(p string) bool { return overlap(subject, p) })
}
