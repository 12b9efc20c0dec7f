package config

import "testing"

// If nothing uses changes, the bridge reads nothing, whatever watch is.
func TestReads(t *testing.T) {
	watch := []Watch{{Resources: []string{"secrets"}}}
	audit, changes := Sink{Name: "a", Events: EventsAudit}, Sink{Name: "b", Events: EventsChanges}
	for name, test := range map[string]struct {
		cfg  Config
		want int
	}{
		"changes":           {Config{Watch: watch, Sinks: []Sink{audit, changes}}, 1},
		"only audit events": {Config{Watch: watch, Sinks: []Sink{audit}}, 0},
	} {
		if got := test.cfg.Reads(); len(got) != test.want {
			t.Errorf("%s: it reads %+v", name, got)
		}
	}
}
