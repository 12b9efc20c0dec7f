package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Each failure is counted; the log has one line a minute for each rule, and says how many there were.
func TestFailuresAreCountedAndSometimesLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var c counter
		f := mustCompile(t, []Rule{{When: "object.no == 1"}, {When: "object.neither == 1"}}, Options{
			OnError: c.onError, Logger: slog.New(slog.NewJSONHandler(&log, nil)),
		})
		fail := func(rule, times int) {
			for range times {
				if !f.rules[rule].belongs(schema.GroupVersionResource{}, newObject("ns", "a", `{}`)) {
					t.Error("an expression that fails refuses")
				}
			}
		}
		fail(0, 3) // a line for the first
		fail(1, 1) // a rule has its own minute
		time.Sleep(logInterval - time.Second)
		fail(0, 2)
		time.Sleep(time.Second)
		fail(0, 4) // a line for the four that went before, and this one
		time.Sleep(logInterval)
		fail(0, 1)

		if diff := cmp.Diff(map[int]int{0: 10, 1: 1}, c.counts); diff != "" {
			t.Errorf("counted failures (-want +got):\n%s", diff)
		}
		type line struct {
			Rule, Failures  int
			Namespace, Name string
			Level, Err      string
		}
		var got []line
		for text := range strings.Lines(log.String()) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		want := []line{
			{0, 1, "ns", "a", "WARN", "no such key: no"},
			{1, 1, "ns", "a", "WARN", "no such key: neither"},
			{0, 5, "ns", "a", "WARN", "no such key: no"},
			{0, 4, "ns", "a", "WARN", "no such key: no"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestResultThatIsNoBool(t *testing.T) {
	var got error
	f := mustCompile(
		t,
		[]Rule{{When: "object.a"}},
		Options{OnError: func(_ int, err error) { got = err }, Logger: quiet()},
	)
	r := f.For(gvr(t, "/v1/pods"))
	for json, fails := range map[string]bool{`{"a":true}`: false, `{"a":"true"}`: true, `{"a":null}`: true, `{"a":{}}`: true} {
		got = nil
		if !r.Belongs(newObject("", "a", json)) {
			t.Errorf("%s: refused", json)
		}
		if errors.Is(got, errNotBool) != fails {
			t.Errorf("%s: error %v", json, got)
		}
	}
	if r.Belongs(newObject("", "a", `{"a":false}`)) {
		t.Error("false passes")
	}
}

// No loop can hang the bridge: it ends with an error after a bounded number of steps.
func TestCostIsLimited(t *testing.T) {
	big := `{"s":"` + strings.Repeat("x", 20_000) + `","list":[` + strings.Repeat("1,", 5_000) + `1]}`
	for name, text := range map[string]string{
		"nested loops":   "object.list.all(x, object.list.all(y, object.list.all(z, x == y && y == z)))",
		"ranges":         "lists.range(10000).all(x, lists.range(10000).all(y, x != -1))",
		"one big range":  "lists.range(2000000000).size() > 0",
		"doubled string": "cel.bind(a, object.s+object.s, cel.bind(b, a+a+a+a+a+a, cel.bind(c, b+b+b+b+b+b, cel.bind(d, c+c+c+c+c+c, (d+d+d+d+d+d).size() > 0))))",
	} {
		t.Run(name, func(t *testing.T) {
			var got error
			f := mustCompile(t, []Rule{{When: text}}, Options{OnError: func(_ int, err error) { got = err }, Logger: quiet()})
			o := newObject("", "a", big)
			start := time.Now()
			if !f.For(gvr(t, "/v1/pods")).Belongs(o) {
				t.Error("refused")
			}
			if got == nil || !strings.Contains(got.Error(), "limit") && !strings.Contains(got.Error(), "maximum") {
				t.Errorf("error %v does not speak of a limit", got)
			}
			t.Logf("%v: %v", time.Since(start).Round(time.Millisecond), got)
		})
	}
}
