package nats

import "testing"

func TestSubjects(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		covers, overlap  bool
	}{
		{"k8s.>", "k8s.*.*", true, true},
		{"k8s.>", "k8s", false, false},
		{"k8s.*", "k8s.a", true, true},
		{"k8s.a", "k8s.*", false, true},
		{"k8s.*.*", "k8s.*", false, false},
		{">", "a", true, true},
		{"*.b", "a.*", false, true},
		{"a.b.>", "a.*", false, false},
		{"a.b", "a.c", false, false},
		{"a.*", "a.>", false, true},
		{"a.>", "a.>", true, true},
		{"a.b.c", "a.>", false, true},
	} {
		if got := covers(c.pattern, c.subject); got != c.covers {
			t.Errorf("covers(%q, %q) is %v", c.pattern, c.subject, got)
		}
		if got := overlap(c.pattern, c.subject); got != c.overlap || overlap(c.subject, c.pattern) != got {
			t.Errorf("overlap(%q, %q) is %v", c.pattern, c.subject, got)
		}
	}
}
