package jsonpatch

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/test/scale"

	independent "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
)

// canonical is a document with sorted members, without white space, with numbers as they are written.
func canonical(t testing.TB, doc []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// checkPatch applies the patch with an independent library and compares what comes out with the new document.
func checkPatch(t testing.TB, before, after []byte) []Change {
	t.Helper()
	changes := Diff(before, after)
	text := AppendPatch(nil, changes)
	patch, err := independent.DecodePatch(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	got, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("%s on %s: %v", text, before, err)
	}
	if diff := cmp.Diff(canonical(t, after), canonical(t, got)); diff != "" {
		t.Fatalf("%s on %s (-want +got):\n%s", text, before, diff)
	}
	return changes
}

func TestDiff(t *testing.T) {
	for _, c := range []struct{ name, before, after, patch, paths string }{
		{"equal", `{"a":1}`, `{"a":1}`, `[]`, ``},
		{"white space around", " {\"a\":1}\n", `{"a":1}`, `[]`, ``},
		{"order of members", `{"a":1,"b":2}`, `{"b":2,"a":1}`, `[]`, ``},
		{"add", `{}`, `{"a":null}`, `[{"op":"add","path":"/a","value":null}]`, `/a`},
		{"remove", `{"a":null,"b":1}`, `{"b":1}`, `[{"op":"remove","path":"/a"}]`, `/a`},
		{"null to value", `{"a":null}`, `{"a":{}}`, `[{"op":"replace","path":"/a","value":{}}]`, `/a`},
		{"empty object to empty list", `{"a":{}}`, `{"a":[]}`, `[{"op":"replace","path":"/a","value":[]}]`, `/a`},
		{"beyond 2^53", `{"a":9007199254740993}`, `{"a":9007199254740992}`, `[{"op":"replace","path":"/a","value":9007199254740992}]`, `/a`},
		{"1 and 1.0", `{"a":1}`, `{"a":1.0}`, `[{"op":"replace","path":"/a","value":1.0}]`, `/a`},
		{"beyond float64", `{"a":1e400}`, `{"a":123456789012345678901234567890.5}`, `[{"op":"replace","path":"/a","value":123456789012345678901234567890.5}]`, `/a`},
		{"unicode", `{"ключ":"é"}`, `{"ключ":"日本\u2028<"}`, `[{"op":"replace","path":"/ключ","value":"日本\u2028<"}]`, `/ключ`},
		{"another spelling", `{"a":"\u003c","\u0062":1}`, `{"a":"<","b":1}`, `[]`, ``},
		{"pointer escapes", `{"metadata":{"labels":{"a.io/b~c":"1"}}}`, `{"metadata":{"labels":{"a.io/b~c":"2"}}}`, `[{"op":"replace","path":"/metadata/labels/a.io~1b~0c","value":"2"}]`, `/metadata/labels/a.io~1b~0c`},
		{"quotes in a key", `{}`, `{"\"":1}`, `[{"op":"add","path":"/\"","value":1}]`, `/"`},
		{"an empty key", `{"":1}`, `{"":2}`, `[{"op":"replace","path":"/","value":2}]`, `/`},
		{"whole document", `{"a":1}`, `[1]`, `[{"op":"replace","path":"","value":[1]}]`, ``},
		{"element inserted", `{"a":[1,2,3]}`, `{"a":[0,1,2,3]}`, `[{"op":"add","path":"/a/0","value":0}]`, `/a/0`},
		{"element appended", `{"a":[]}`, `{"a":[1]}`, `[{"op":"add","path":"/a/0","value":1}]`, `/a/0`},
		{"element replaced", `{"a":[1,2,3]}`, `{"a":[1,5,3]}`, `[{"op":"replace","path":"/a/1","value":5}]`, `/a/1`},
		{"elements removed", `{"a":[1,2,3,4]}`, `{"a":[1,4]}`, `[{"op":"remove","path":"/a/1"},{"op":"remove","path":"/a/1"}]`, `/a/1 /a/2`},
		{
			"a container inserted and another changed",
			`{"c":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}`, `{"c":[{"name":"x","image":"1"},{"name":"a","image":"1"},{"name":"b","image":"2"}]}`,
			`[{"op":"add","path":"/c/0","value":{"name":"x","image":"1"}},{"op":"replace","path":"/c/2/image","value":"2"}]`, `/c/0 /c/2/image`,
		},
		{
			"one removed, another changed, one added",
			`{"c":[{"name":"a"},{"name":"b","v":1},{"name":"c"}]}`, `{"c":[{"name":"b","v":2},{"name":"c"},{"name":"d"}]}`,
			`[{"op":"remove","path":"/c/0"},{"op":"replace","path":"/c/0/v","value":2},{"op":"add","path":"/c/2","value":{"name":"d"}}]`, `/c/0 /c/0/v /c/2`,
		},
		{
			"ports without names", `{"p":[{"containerPort":80},{"containerPort":81}]}`, `{"p":[{"containerPort":81,"protocol":"TCP"}]}`,
			`[{"op":"remove","path":"/p/0"},{"op":"add","path":"/p/0/protocol","value":"TCP"}]`, `/p/0 /p/0/protocol`,
		},
		{"lists in lists", `{"a":[[1,2],[3]]}`, `{"a":[[1,2],[3,4]]}`, `[{"op":"add","path":"/a/1/1","value":4}]`, `/a/1/1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes := checkPatch(t, []byte(c.before), []byte(c.after))
			if diff := cmp.Diff(c.patch, string(AppendPatch(nil, changes))); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			var paths []string
			for _, change := range changes {
				paths = append(paths, change.Pointer())
			}
			if diff := cmp.Diff(c.paths, strings.Join(paths, " ")); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

// What can't be compared member by member is replaced as a whole.
func TestDiffOfOddDocuments(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)
	for _, c := range [][3]string{
		{`{"a":1,"a":2}`, `{"a":3,"a":2}`, ""}, {`{"a":1`, `{"a":2}`, ""}, {`[1,`, `[2]`, ""}, {``, `{}`, ""}, {`{"a":tru}`, `{"a":1}`, "/a"},
	} {
		changes := Diff([]byte(c[0]), []byte(c[1]))
		if len(changes) != 1 || changes[0].Op != Replace || changes[0].Pointer() != c[2] {
			t.Errorf("%q to %q: %s", c[0], c[1], AppendPatch(nil, changes))
		}
	}
	changes := Diff([]byte(deep), []byte(strings.Replace(deep, "1", "2", 1)))
	if len(changes) != 1 || len(changes[0].Path) != maxDepth+1 {
		t.Errorf("%d changes", len(changes))
	}
}

// edit makes a few random edits of a decoded document.
func edit(r *rand.Rand, v any) any {
	values := []any{
		nil, true, "", "日本 \u2028 <&> \" \\ /~", json.Number("9007199254740993"), json.Number("-1.0"), json.Number("1e400"),
		map[string]any{},
		[]any{},
		map[string]any{"name": "x", "a/b~c": nil},
		[]any{map[string]any{"name": "y"}, "z"},
	}
	random := func() any { return values[r.IntN(len(values))] }
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, name := range slices.Sorted(mapsKeys(v)) {
			switch r.IntN(20) {
			case 0:
			case 1:
				out[name] = random()
			default:
				out[name] = edit(r, v[name])
			}
		}
		if r.IntN(8) == 0 { // no empty key: the independent library can't go through one
			out[[]string{"new", "a/b", "~", "é", "name"}[r.IntN(5)]] = random()
		}
		return out
	case []any:
		var out []any
		for _, e := range v {
			switch r.IntN(12) {
			case 0:
			case 1:
				out = append(out, random(), e)
			default:
				out = append(out, edit(r, e))
			}
		}
		if len(out) > 1 && r.IntN(10) == 0 {
			r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		if out == nil {
			return []any{}
		}
		return out
	default:
		if r.IntN(12) == 0 {
			return random()
		}
		return v
	}
}

func mapsKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// A thousand random edits, one after the other, of realistic objects.
func TestRandomEdits(t *testing.T) {
	for _, name := range []string{"pod", "configmap", "widget", "podlist"} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile("../../pkg/object/testdata/" + name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			first := before
			r := rand.New(rand.NewPCG(1, 2))
			operations, edits := 0, scale.Of(200, 1000)
			for n := range edits {
				if n%20 == 0 {
					before = first // else little of it is left
				}
				d := json.NewDecoder(bytes.NewReader(before))
				d.UseNumber()
				var v any
				if err := d.Decode(&v); err != nil {
					t.Fatal(err)
				}
				after, err := json.Marshal(edit(r, v))
				if err != nil {
					t.Fatal(err)
				}
				operations += len(checkPatch(t, before, after))
				before = after
			}
			if operations < edits/2 {
				t.Errorf("only %d operations were tried", operations)
			}
		})
	}
}

func FuzzDiff(f *testing.F) {
	f.Add(`{"a":[1,{"name":"x"}]}`, `{"a":[{"name":"x","b":null}],"":1.0}`)
	f.Add(`{"a":1,"a":2}`, `{"a":"\ud800"}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		changes := Diff([]byte(before), []byte(after))
		patch := AppendPatch(nil, changes)
		if !json.Valid([]byte(before)) || !json.Valid([]byte(after)) {
			return
		}
		if !json.Valid(patch) {
			t.Fatalf("%s is no JSON", patch)
		}
		if !plain(before) || !plain(after) {
			return
		}
		checkPatch(t, []byte(before), []byte(after))
	})
}

// plain is an object that the independent library takes: without empty and duplicate keys, escapes and odd UTF-8.
func plain(doc string) bool {
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	if strings.Contains(doc, `""`) || d.Decode(&v) != nil || v == nil || strings.Contains(doc, `\`) ||
		strings.ToValidUTF8(doc, "") != doc {
		return false
	}
	out, err := json.Marshal(v)
	var compact bytes.Buffer
	return err == nil && json.Compact(&compact, []byte(doc)) == nil && len(out) == compact.Len()
}

func BenchmarkDiff(b *testing.B) {
	before, err := os.ReadFile("../../pkg/object/testdata/pod.json")
	if err != nil {
		b.Fatal(err)
	}
	after := []byte(strings.Replace(string(before), `"Running"`, `"Failed"`, 1))
	b.SetBytes(int64(len(before)))
	b.ReportAllocs()
	for b.Loop() {
		AppendPatch(nil, Diff(before, after))
	}
}
