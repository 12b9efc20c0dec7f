package filter

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/deltabridge/deltabridge/pkg/event"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// sameAsDecoded compares a view with the decoded value that it stands for, in every way in which an expression may
// look at it.
func sameAsDecoded(t *testing.T, path string, view ref.Val, decoded any) {
	t.Helper()
	want := types.DefaultTypeAdapter.NativeToValue(decoded)
	if view.Type() != want.Type() {
		t.Fatalf("%s: a %v, decoded a %v", path, view.Type(), want.Type())
	}
	if noTwins(view, decoded) && (view.Equal(want) != types.True || want.Equal(view) != types.True) {
		t.Errorf("%s: not equal to the decoded value %v", path, decoded)
	}
	switch decoded := decoded.(type) {
	case map[string]any:
		o := view.(*jsonObject)
		for key, value := range decoded {
			field, found := o.Find(types.String(key))
			if !found || o.Contains(types.String(key)) != types.True {
				t.Fatalf("%s: no %q", path, key)
			}
			sameAsDecoded(t, path+"."+key, field, value)
			if again := o.Get(types.String(key)); again != field && again.Equal(field) != types.True {
				t.Errorf("%s.%s: asked again: %v, not %v", path, key, again, field)
			}
			other := key + "x"
			for range 2 {
				if _, has := decoded[other]; !has && o.Contains(types.String(other)) != types.False {
					t.Errorf("%s: contains %q", path, other)
				}
			}
		}
		keys := 0
		for i := o.Iterator(); i.HasNext() == types.True; keys++ {
			if _, ok := decoded[string(i.Next().(types.String))]; !ok {
				t.Errorf("%s: iterates over a wrong key", path)
			}
		}
		if keys != len(decoded) {
			t.Errorf("%s: iterates over %d keys, decoded %d", path, keys, len(decoded))
		}
	case []any:
		list := view.(traits.Lister)
		if list.Size() != types.Int(len(decoded)) {
			t.Fatalf("%s: size %v, decoded %d", path, list.Size(), len(decoded))
		}
		for i, value := range decoded {
			sameAsDecoded(t, fmt.Sprintf("%s[%d]", path, i), list.Get(types.Int(i)), value)
		}
	}
}

// noTwins reports that no object has a key twice. The API server sends none; a view finds the right field of them, but
// counts both.
func noTwins(view ref.Val, decoded any) bool {
	switch decoded := decoded.(type) {
	case map[string]any:
		o := view.(*jsonObject)
		for key, value := range decoded {
			if field, found := o.Find(types.String(key)); !found || !noTwins(field, value) {
				return false
			}
		}
		return o.Size() == types.Int(len(decoded))
	case []any:
		list := view.(traits.Lister)
		for i, value := range decoded {
			if !noTwins(list.Get(types.Int(i)), value) {
				return false
			}
		}
	}
	return true
}

func FuzzView(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { "a" : [ 1 , -2.5e3 , "x\"\\" , null , true, false, {} , [] ] , "b":{"c":{"d":"e"}} } `, "{\"a\u00e9\":\"\u00e9\"}",
		`{"a":1,"a":{"b":2}}`, `{"\u0061":1}`, "{\"\xff\":\"\xfe\"}", `{"a":"\ud800","b":"\\"}`, `{"n":9223372036854775808,"m":-9223372036854775808,"z":-0,"o":1.0}`,
		`{"a":`, `{"a"}`, `{]`, `{"a":[1,}`, `{"`, `{"a":"\"`, `{,}`, `{"a":nul}`, `{"a":{]}}`, `{1:2}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		view := newView([]byte(text))
		var decoded map[string]any
		if err := utiljson.Unmarshal([]byte(text), &decoded); err != nil || decoded == nil {
			// No panic, no endless loop, whatever it is.
			if o, ok := view.(*jsonObject); ok {
				for _, key := range []string{"a", "b", ""} {
					o.Find(types.String(key))
				}
				o.Size()
				o.Equal(view)
				o.Iterator()
			}
			return
		}
		sameAsDecoded(t, "object", view, decoded)
	})
}

func TestViewOfAPod(t *testing.T) {
	raw := benchPod(t, "Running")
	var indented strings.Builder
	e := json.NewEncoder(&indented)
	e.SetIndent(" ", "\t")
	if err := e.Encode(json.RawMessage(raw)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"compact": string(raw), "indented": indented.String()} {
		t.Run(name, func(t *testing.T) {
			var decoded map[string]any
			if err := utiljson.Unmarshal([]byte(text), &decoded); err != nil {
				t.Fatal(err)
			}
			sameAsDecoded(t, "object", newView([]byte(text)), decoded)
		})
	}
}

// An expression has the same result, or the same error, over a view as over the decoded object.
func TestViewEvaluatesAsDecoded(t *testing.T) {
	const text = `{"kind":"Pod","a":{"b":1,"c":[1,"x",{"d":null}],"e":{}},"s":"\u00e4\n","t":true,"f":1.5,"old":{"b":1,"e":{},"c":[1,"x",{"d":null}]}}`
	env, err := newEnv(varObject)
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := utiljson.Unmarshal([]byte(text), &decoded); err != nil {
		t.Fatal(err)
	}
	for _, expression := range []string{
		"object.a.b == 1", "object.a.nope == 1", "has(object.a.nope)", "has(object.nope.nope)", "object.a.c[2].d == null",
		"object.a.c[3] == 1", "object.a.b.c == 1", "object.kind.x == 1", "object.a.?b.orValue(2) == 1", "object.?x.?y.hasValue()",
		"object.a == object.old", "object.a != object.old", "object.a == {'b': 1}", "object.a.e == {}", "object == object", "object.a == null",
		"object.a == [1]", "'b' in object.a", "'x' in object.a", "object.a.all(k, k != '')", "object.a.exists(k, v, v == 1)",
		"object.a.map(k, k).size() == 3", "object.transformMap(k, v, k).size() == 6", "size(object) == 6", "size(object.a) == 3", "object[dyn(1)] == 1",
		"object['a']['b'] == 1", "object.a[object.kind] == 1", "type(object.a) == map", "type(object.f) == double", "object.s == '\u00e4\\n'",
		"object.a.c.exists(x, x == 'x')", "optional.ofNonZeroValue(object.a.e).hasValue()", "optional.ofNonZeroValue(object.a).hasValue()",
		"[object.a] == [object.old]", "object.a in [object.old]", "dyn(object.a) == dyn(object.old)", "string(object.a) == ''",
		"object.?a[?'b'].orValue(3) == 1", "object.t", "object.a", "'%s'.format([object.a.c]) != ''", "'%s'.format([object.a.e]) == '{}'",
	} {
		t.Run(expression, func(t *testing.T) {
			program, _ := env.compile(
				expression,
				func(line, column int, err error) { t.Fatalf("%s, %d:%d: %v", expression, line, column, err) },
			)
			want, _, wantErr := program.Eval(map[string]any{varObject: decoded})
			c := change{op: event.Added, now: newObject("", "", text)}
			got, _, gotErr := program.Eval(&variables{change: c, bytes: allBytes})
			if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
				t.Fatalf("error %v, over the decoded object %v", gotErr, wantErr)
			}
			if wantErr == nil && got.Equal(want) != types.True {
				t.Errorf("%v, over the decoded object %v", got, want)
			}
		})
	}
}
