package jsonscan

import (
	"fmt"
	"testing"
)

// walk lists the entries that a walker finds, and where it ends.
func walk(text string, bracket byte) string {
	w := Open([]byte(text), 0, bracket)
	found := ""
	for key, value := range w.All {
		found += fmt.Sprintf("%s=%s ", key, value)
	}
	return found + fmt.Sprint(w.End())
}

func TestWalker(t *testing.T) {
	for _, c := range []struct {
		text    string
		bracket byte
		want    string
	}{
		{`{}`, '{', "2"},
		{` { "a" : 1 , "b\u0063":[{"x":2}],"":null} x`, '{', `a=1 bc=[{"x":2}] =null 41`},
		{`{"a":1,"a":2}`, '{', "a=1 a=2 13"},
		{`{"\q":1}`, '{', "=1 8"},
		{`[1,"]",{"a":[]}]`, '[', `=1 ="]" ={"a":[]} 16`},
		{`[1]`, '{', "3"},
		{`null`, '[', "4"},
		{`"{}"`, '{', "4"},
		{``, '{', "-1"},
		{`{"a":1`, '{', "a=1 -1"},
		{`{"a"}`, '{', "-1"},
		{`{"a":1 "b":2}`, '{', "a=1 -1"},
		{`{"a":1,}`, '{', "a=1 -1"},
		{`{a:1}`, '{', "-1"},
		{`[1,]`, '[', "=1 -1"},
		{`[1}`, '[', "=1 -1"},
		{`{"a":"x`, '{', "-1"},
	} {
		if got := walk(c.text, c.bracket); got != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestMember(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":2}`: "1", `{"A":1}`: "", `{"\u0061":1}`: "1", `{"a":1,"a":[2]}`: "[2]", `["a"]`: "", ``: "", `{"b":{"a":1}}`: "",
	} {
		if got := string(Member([]byte(text), "a")); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{`"a"`: "a", `""`: "", `"\u00fc\n"`: "ü\n", "\"\xff\"": "\ufffd", `"ü"`: "ü"} {
		if got := Text([]byte(value)); got == nil || string(got) != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
	for _, value := range []string{``, `"`, `1`, `null`, `{"a":1}`, `"\q"`, "\"\n\""} {
		if got := Text([]byte(value)); got != nil {
			t.Errorf("%s: %q", value, got)
		}
	}
}
