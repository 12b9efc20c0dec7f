package schemas

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func parsed(t *testing.T, name string) map[string]any {
	t.Helper()
	text, ok := Get(name)
	if !ok {
		t.Fatalf("there is no schema %q", name)
	}
	var schema map[string]any
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// Each schema is one, by the metaschema of its draft. What they do with events is tested in pkg/event and test/e2e.
func TestSchemas(t *testing.T) {
	if want := []string{
		"audit",
		"change",
		"cloudevent",
		"debezium",
		"gap",
		"metadata",
		"object",
		"progress",
		"synced",
	}; !slices.Equal(
		Names(),
		want,
	) {
		t.Errorf("names %v", Names())
	}
	for _, name := range Names() {
		text, _ := Get(name)
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource(name, document); err != nil {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile(name)
		if err != nil {
			t.Fatal(err)
		}
		if compiled.DraftVersion != 2020 {
			t.Errorf("%s is of draft %d", name, compiled.DraftVersion)
		}
		if id := parsed(t, name)["$id"]; id != BaseURL+name+suffix || !strings.HasSuffix(BaseURL, "/docs/schemas/"+dir+"/") {
			t.Errorf("%s: $id %s", name, id)
		}
	}
	if _, ok := Get("none"); ok {
		t.Error("a schema that is not there was found")
	}
}

// So that each file is complete in itself, what several need is in each of them: it must be the same.
func TestSharedDefinitions(t *testing.T) {
	all := map[string]any{}
	for _, name := range Names() {
		schema := parsed(t, name)
		for _, key := range []string{"$schema", "$id", "$defs"} {
			delete(schema, key)
		}
		all[name] = schema
	}
	for _, name := range Names() {
		defs, _ := parsed(t, name)["$defs"].(map[string]any)
		for def, got := range defs {
			want, known := all[def]
			if all[def] = got; known {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s differs (-elsewhere +there):\n%s", name, def, diff)
				}
			}
		}
	}
	if all["objectMeta"] == nil {
		t.Error("nothing is shared")
	}
}
