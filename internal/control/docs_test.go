package control

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the reference page")

// docs/status.md has each key of the status, with its type and the comment of its field.
func TestStatusPage(t *testing.T) {
	comments := comments(t)
	page := statusIntro
	for _, h := range []Health{Healthy, Idle, Unknown, Stopping, Waiting, Lossy, Failing, AtRisk} {
		page += fmt.Sprintf("| `%s` | %s |\n", h, comments[string(h)])
	}
	page += "\n## All keys\n\nKeys that are marked as optional are absent if there is nothing to say.\n"
	seen := map[reflect.Type]bool{}
	for todo := []reflect.Type{reflect.TypeFor[Status]()}; len(todo) > 0; todo = todo[1:] {
		typ := todo[0]
		if seen[typ] {
			continue
		}
		seen[typ] = true
		page += fmt.Sprintf("\n### %s\n\n%s\n\n| key | type | meaning |\n|---|---|---|\n", typ.Name(), comments[typ.Name()])
		for f := range typ.Fields() {
			key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			comment := comments[typ.Name()+"."+f.Name]
			if key == "" || comment == "" {
				t.Errorf("%s.%s has no key or no comment", typ.Name(), f.Name)
			}
			text, inner := typeText(f.Type)
			if inner != nil {
				todo = append(todo, inner)
			}
			if options != "" {
				text += ", optional"
			}
			page += fmt.Sprintf("| `%s` | %s | %s |\n", key, text, comment)
		}
	}
	const path = "../../docs/status.md"
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != page {
		t.Errorf(
			"%s is not what the code says; go test ./internal/control -run %s -update writes it anew (%v)",
			path,
			t.Name(),
			err,
		)
	}
}

// typeText returns how the page calls a type. inner is the type of the objects, if it has any.
func typeText(typ reflect.Type) (text string, inner reflect.Type) {
	switch {
	case typ == reflect.TypeFor[time.Time]():
		return "string (RFC 3339)", nil
	case typ == reflect.TypeFor[Health]():
		return "string ([health](#health))", nil
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return typeText(typ.Elem())
	case reflect.Slice:
		text, inner = typeText(typ.Elem())
		return "list of " + strings.Replace(strings.Replace(text, "object", "objects", 1), "string", "strings", 1), inner
	case reflect.Struct:
		return fmt.Sprintf("object ([%s](#%s))", typ.Name(), strings.ToLower(typ.Name())), typ
	case reflect.Float64:
		return "number", nil
	case reflect.Bool:
		return "boolean", nil
	case reflect.String:
		return "string", nil
	default:
		return "integer", nil
	}
}

// comments returns the comments of types, of their fields ("Type.Field"), and of constants by their values.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range []string{"model.go", "status.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		line := func(groups ...*ast.CommentGroup) string {
			var texts []string
			for _, g := range groups {
				texts = append(texts, strings.Fields(g.Text())...)
			}
			return strings.ReplaceAll(strings.Join(texts, " "), "|", `\|`)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				if n.Tok == token.TYPE {
					spec := n.Specs[0].(*ast.TypeSpec)
					all[spec.Name.Name] = line(n.Doc)
					if s, ok := spec.Type.(*ast.StructType); ok {
						for _, f := range s.Fields.List {
							for _, name := range f.Names {
								all[spec.Name.Name+"."+name.Name] = line(f.Doc, f.Comment)
							}
						}
					}
				}
			case *ast.ValueSpec:
				if len(n.Values) == 1 {
					if value, ok := n.Values[0].(*ast.BasicLit); ok {
						all[strings.Trim(value.Value, `"`)] = line(n.Comment)
					}
				}
			}
			return true
		})
	}
	return all
}

const statusIntro = `# Status

` + "`GET /api/status`" + ` on the HTTP port of a replica returns its status as JSON: whether everything is delivered and, if not,
where events wait, why, what to do, and how much longer the outage may last before something is lost.
[` + "`bridge status`" + `](commands.md#bridge-status) shows it to people.

- The request requires no token, because the status contains no data of objects. Errors of a broker can contain names of
  objects.
- Later versions add keys, but do not remove any, and do not change the meaning of one. They may add values of ` + "`health`" + `.
- Only the process that leads has ` + "`sources`" + `, ` + "`sinks`" + ` and ` + "`checkpoint`" + `.
- Rates are 0 for the first ten seconds of a process.

` + "```sh" + `
curl -s http://127.0.0.1:8080/api/status | jq .verdict
` + "```" + `

` + "```json" + `
{
  "health": "waiting",
  "text": "Sink audit does not deliver since 02:10 UTC: kafka:9092: connect: connection refused; its events wait, and nothing is lost for at least 3h12m.",
  "remedy": "check that the broker is running and the port is correct"
}
` + "```" + `

## The time until a loss

` + "`fuse`" + ` of a sink says how much longer its outage, or its pause, may last before something is lost. It is present while the
sink is paused or its destination is unavailable, events are on disk, or an event is older than ten seconds. The metric
` + "`deltabridge_fuse_seconds`" + ` has the same value, and the alert [DeltabridgeFuse](operations.md#deltabridgefuse) fires if less
than 30 minutes are left. The time is *at least* as long, if changes go on at the present rate: that of the last minute, or of
the last ten seconds if this is higher. It is the sum of:

1. The time until the room on disk is used up (` + "`buffer.spill.maxBytes`" + `, or the volume of ` + "`state.path`" + `, which all sinks share),
   and then memory.
2. With ` + "`overflow: block`" + `, 75 seconds: for at least as long, the API server keeps changes that the bridge does not read. A
   sink that is full delays other sinks of the same resources, so their events are lost with its own. With ` + "`compact`" + ` and
   ` + "`drop-oldest`" + `, states are lost as soon as the queue is full.

While sources wait for a full queue, the time is what is left of the 75 seconds. If it is negative, a gap event will
probably follow.

The events on disk count as safe: do not delete the volume of ` + "`state.path`" + ` or, if that is an ` + "`emptyDir`" + `, the Pod. With
[` + "`state.log`" + `](availability.md), they are also in the log. While the log is unavailable, only the leader has them, and the
time is what is left of the 75 seconds for the oldest of them: at 0, a loss of the leader loses events, but the outage
alone does not.

The time does not consider a restart of the API server, which loses its history; more than about 1,300 changes per second
of one resource, of which the API server keeps at most 100,000; and a rate that will be higher.

## Health

Each part has a state. The verdict has the worst one. The states, the best first:

| health | meaning |
|---|---|
`
