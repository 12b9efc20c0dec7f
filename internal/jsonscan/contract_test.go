package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// members returns what encoding/json finds in an object, with the values as they are written.
func members(t *testing.T, doc string) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(doc), &raw); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	found := map[string]string{}
	for name, value := range raw {
		found[name] = string(value)
	}
	return found
}

// All and encoding/json find the same members, however the document is written.
func TestAllAgreesWithEncodingJSON(t *testing.T) {
	for _, doc := range []string{
		`{"a":1,"b":"x","c":null,"d":true,"e":[1,[2]],"f":{"g":{}}}`,
		"{\n\t\"a\" : 1 ,\r\n \"b\" : [ ] }",
		`{"":"","\u00e9":"\"","\\":"\\\\","é":"\\\"}"}`,
		`{"a":"{\"b\":1}","]":"[","}":"{"}`,
		`{"` + strings.Repeat("k", 100) + `":"` + strings.Repeat(`\"`, 50) + `"}`,
		`{"a":-0.5e-3,"a":2}`,
	} {
		got := map[string]string{}
		w := Open([]byte(doc), 0, '{')
		for key, value := range w.All {
			got[string(key)] = string(value)
		}
		if want := members(t, doc); fmt.Sprint(got) != fmt.Sprint(want) || w.End() != len(doc) {
			t.Errorf("%s: %q until %d, want %q", doc, got, w.End(), want)
		}
	}
}

// A caller can read some members itself, and tell the walker where it ended.
func TestLeave(t *testing.T) {
	doc := []byte(` {"skip":[1,{"x":2}],"inner":{"a":"b"},"text":"t\u0021","last":3} `)
	w := Open(doc, 0, '{')
	var seen []string
	for w.Next() {
		switch string(w.Key) {
		case "inner":
			inner := Open(doc, w.Pos, '{')
			for inner.Next() {
				seen = append(seen, string(inner.Key)+"="+string(inner.Text()))
			}
			w.Leave(inner.End())
		case "text":
			seen = append(seen, string(w.Text()))
		default:
			w.Skip()
		}
	}
	if got := strings.Join(seen, " "); got != "a=b t!" || w.End() != len(doc)-1 {
		t.Errorf("%q until %d of %d", got, w.End(), len(doc))
	}
	w = Open(doc, 0, '{')
	w.Next()
	w.Leave(-1)
	if w.Next() || !w.Bad || w.End() != -1 {
		t.Error("a value that does not end does not end the object")
	}
}

// The offsets of a member are those that a caller needs to cut it out, with one comma.
func TestOffsets(t *testing.T) {
	doc := []byte(`{ "a" : 1 , "b" : 2 }`)
	w := Open(doc, 0, '{')
	var got []string
	for w.Next() {
		got = append(got, fmt.Sprint(w.Comma, w.KeyAt, w.Pos))
		w.Skip()
	}
	if want := "-1 2 8, 10 12 18"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A loop that ends early can't be continued by accident with half a value.
func TestAllCanEndEarly(t *testing.T) {
	w := Open([]byte(`[1,2,3]`), 0, '[')
	first := ""
	for key, value := range w.All {
		if first = string(value); key != nil {
			t.Errorf("an element has the key %q", key)
		}
		break
	}
	rest := ""
	for _, value := range w.All {
		rest += string(value)
	}
	if first != "1" || rest != "23" {
		t.Errorf("%s, then %s", first, rest)
	}
}

// The depth of a document uses no stack, and what is cut off anywhere ends nowhere.
func TestDepthAndTruncation(t *testing.T) {
	const depth = 1_000_000
	deep := []byte(strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth))
	if got := Value(deep, 0); got != len(deep) {
		t.Errorf("%d of %d", got, len(deep))
	}
	if got := Value(deep[:len(deep)-1], 0); got != -1 {
		t.Errorf("without its last bracket it ends at %d", got)
	}
	doc := []byte(`{"a":[1,"x\\",{"b":"\""}],"c":"d"}`)
	for end := range doc {
		cut := bytes.Clone(doc[:end])
		w := Open(cut, 0, '{')
		for w.Next() {
			w.Skip()
		}
		if Value(cut, 0) != -1 || w.End() != -1 {
			t.Errorf("%s ends at %d, its members at %d", cut, Value(cut, 0), w.End())
		}
	}
}

// Only keys and texts with escapes or beyond ASCII are copied.
func TestAliases(t *testing.T) {
	doc := []byte(`{"plain":"text","\u0065scaped":"t\u0065xt"}`)
	if allocs := testing.AllocsPerRun(100, func() { Member(doc[:16], "plain") }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	w := Open(doc, 0, '{')
	w.Next()
	key, text := w.Key, w.Text()
	doc[2], doc[10] = 'P', 'T'
	if string(key) != "Plain" || string(text) != "Text" {
		t.Errorf("%s=%s are copies", key, text)
	}
	w.Next()
	key, text = w.Key, w.Text()
	copy(doc[17:], strings.Repeat("x", len(doc)-17))
	if string(key) != "escaped" || string(text) != "text" {
		t.Errorf("%s=%s are not copies", key, text)
	}
}
