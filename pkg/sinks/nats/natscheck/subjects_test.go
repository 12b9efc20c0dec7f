package natscheck

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestSubjectWildcards: what a permission, or the subject of a stream, says of all subjects of a pattern, and of some.
func TestSubjectWildcards(t *testing.T) {
	tests := []struct {
		filter, pattern  string
		covers, overlaps bool
	}{
		{"k8s.>", "k8s.*.*", true, true},
		{">", "k8s.*", true, true},
		{"k8s.*.*", "k8s.*.*", true, true},
		{"k8s.*", "k8s.*.*", false, false},
		{"k8s.*.*.*", "k8s.*.*", false, false},
		{"k8s.*.>", "k8s.*", false, false},
		{"k8s.prod.*", "k8s.*.*", false, true},
		{"k8s.*.pods", "k8s.prod.*", false, true},
		{"k8s.prod.>", "k8s.test.*", false, false},
		{"k8s.a", "k8s.a", true, true},
		{"orders.>", "k8s.*", false, false},
	}
	for _, test := range tests {
		all, some := allows(&server.SubjectPermission{Allow: []string{test.filter}}, test.pattern)
		if all != test.covers || some != test.overlaps {
			t.Errorf("%q of %q: all %v, some %v", test.filter, test.pattern, all, some)
		}
		all, some = allows(&server.SubjectPermission{Deny: []string{test.filter}}, test.pattern)
		if all != !test.overlaps || some != !test.covers {
			t.Errorf("all but %q of %q: all %v, some %v", test.filter, test.pattern, all, some)
		}
	}
}
