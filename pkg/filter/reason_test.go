package filter

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// What CEL says of a failure can quote the object; neither the log nor Explain does.
func TestFailuresDoNotQuoteTheObject(t *testing.T) {
	for when, want := range map[string]string{
		"object.missing == 1":                      "no such key: missing",
		"object.keys[object.secret] == 1":          "no such key",
		"int(object.secret) == 1":                  "type conversion error",
		"timestamp(object.secret) < timestamp(0)":  "a function does not accept its argument",
		"duration(object.secret) > duration('1s')": "type conversion error",
		"'x'.matches(object.secret)":               "a function does not accept its argument",
		"ip(object.secret).isLoopback()":           "a function does not accept its argument",
		"object.secret + 1 == 2":                   "no such overload",
		"1 / object.zero == 1":                     "division by zero",
		"object.number + 1 == 0":                   "integer overflow",
		"object.secret":                            "the result is not a boolean",
		"object.list[object.number] == 1":          "index out of bounds",
	} {
		var log bytes.Buffer
		f := mustCompile(t, []Rule{{When: when}}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		o := newObject("ns", "a", `{"secret":"hunter2(","keys":{},"zero":0,"number":9223372036854775807,"list":[1]}`)
		if !f.For(gvr(t, "/v1/pods")).Belongs(o) {
			t.Errorf("%s: refused", when)
		}
		if !strings.Contains(log.String(), want) || strings.Contains(log.String(), "hunter2") ||
			strings.Contains(log.String(), "922337") {
			t.Errorf("%s: %s", when, log.String())
		}
		explained := f.Explain(gvr(t, "/v1/pods"), event.Added, nil, o)[0].Conditions[0].Error
		if !strings.Contains(explained, want) || strings.Contains(explained, "hunter2") ||
			strings.Contains(explained, "922337") {
			t.Errorf("%s is explained as %q", when, explained)
		}
	}
}
