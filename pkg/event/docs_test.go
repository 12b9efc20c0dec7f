package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// eventsPage gives a section of docs/events.md.
func eventsPage(t *testing.T, section string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	if !found {
		t.Fatalf("there is no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// rows gives the cells of a table, without its head.
func rows(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		if inner, isRow := strings.CutPrefix(strings.TrimSpace(line), "| "); isRow {
			all = append(all, strings.Split(strings.TrimSuffix(inner, " |"), " | "))
		}
	}
	return all[min(1, len(all)):]
}

var code = regexp.MustCompile("`([^`]*)`")

// codes gives what stands in backticks.
func codes(text string) (all []string) {
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestTypesPage(t *testing.T) {
	var got, want []string
	data := map[string]string{}
	for _, row := range rows(eventsPage(t, "Types")) {
		got = append(got, codes(row[0])...)
		data[codes(row[0])[0]] = row[2]
	}
	for typ := Added; typ.String() != Type(0).String(); typ++ {
		want = append(want, typ.CloudEventsType())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types (-code +page):\n%s", diff)
	}
	for typ, info := range map[Type]reflect.Type{
		Gap: reflect.TypeFor[GapInfo](), Synced: reflect.TypeFor[SyncedInfo](),
		Progress: reflect.TypeFor[ProgressInfo](),
	} {
		var keys []string
		for f := range info.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "-" {
				keys = append(keys, strconv.Quote(name))
			}
		}
		if want := "`{" + strings.Join(keys, ", ") + "}`"; data[typ.CloudEventsType()] != want {
			t.Errorf("%s: data %s, want %s", typ, data[typ.CloudEventsType()], want)
		}
	}
}

// The attributes are those that messages of every kind have, together; their values have the forms that the page shows.
func TestAttributesPage(t *testing.T) {
	page := map[string]string{}
	for _, row := range rows(eventsPage(t, "Attributes")) {
		for _, name := range codes(row[0]) {
			page[name] = row[1]
		}
	}
	key, err := ParseTemplate("{uid}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	// Values that are their own descriptions.
	resource := schema.GroupVersionResource{Group: "<group>", Version: "v1", Resource: "<resource>"}
	o := &object.Object{
		Raw:      []byte("{}"),
		Identity: new(object.Identity).WithKind(schema.GroupVersionKind{Group: "<group>", Version: "v1", Kind: "Pod"}),
	}
	o.Namespace, o.Name, o.UID, o.ResourceVersion, o.Manager = "<namespace>", "<name>", "<uid>", "<resourceVersion>", "kubectl"
	unseen := *o
	unseen.FinalStateUnknown = true
	e := &Encoder{Cluster: "<cluster>", PartitionKey: key}
	seenNames := map[string]bool{}
	for _, ev := range []Event{
		{Type: Added, Object: o, InitialList: true},
		{Type: Restated, Object: o},
		{Type: Updated, Object: o, Context: &testContext},
		{Type: Deleted, Object: o},
		{Type: Deleted, Object: &unseen},
		{Type: Deleted, Object: o, Selected: true},
		{Type: Deleted, Object: o, LeftAt: o.ResourceVersion},
		{Type: Gap, GapInfo: &GapInfo{Resource: "r"}},
		{Type: Synced, SyncedInfo: &SyncedInfo{Resource: "r"}},
		{Type: Progress, ProgressInfo: &ProgressInfo{Resource: "r"}},
	} {
		ev.Resource = resource
		m := encode(t, e, ev)
		m.ClusterUID = "k1"
		got := attributes(m)
		for name, value := range got {
			seenNames[name] = true
			form := ""
			switch {
			case ev.Type.IsControl() && name != "source" && name != "datacontenttype" && name != "specversion":
			case name == "subject":
				form = strings.Replace(value, ".<group>", "[.<group>]", 1)
			case slices.Contains([]string{"specversion", "id", "source", "datacontenttype", "operation", "initiallist", "finalstateunknown", "leftfilter"}, name):
				form = value
			}
			if form != "" && !strings.Contains(page[name], "`"+form+"`") {
				t.Errorf("%s can be %q: %s", name, form, page[name])
			}
		}
	}
	refused := encode(t, e, Event{Type: Added, Object: o, Resource: resource})
	refused.Marks = &Marks{
		Omitted: ReasonOversize,
		Size:    1,
		Ref:     "nats-object://BUCKET/NAME",
		Digest:  "sha256:<64 hex digits>",
		Refused: ReasonRefused,
		Cause:   "c",
	}
	for name, value := range attributes(refused) {
		seenNames[name] = true
		if slices.Contains([]string{"dataomitted", "dataref", "datadigest", "refused"}, name) &&
			!strings.Contains(page[name], "`"+value+"`") {
			t.Errorf("%s can be %q: %s", name, value, page[name])
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(seenNames)), slices.Sorted(maps.Keys(page))); diff != "" {
		t.Errorf("attributes (-code +page):\n%s", diff)
	}
	node := mustObject(t, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"1"}}`)
	if m := encode(
		t,
		e,
		Event{Type: Added, Resource: nodes, Object: node},
	); !slices.Contains(
		codes(page["subject"]),
		m.Subject(),
	) {
		t.Errorf("the page does not show %q", m.Subject())
	}
}

func TestPayloadsPage(t *testing.T) {
	section := eventsPage(t, "Payloads")
	for _, payload := range []Payload{PayloadObject, PayloadChange, PayloadMetadata, PayloadDebezium} {
		if !strings.Contains(section, "`payload: "+string(payload)+"`") {
			t.Errorf("the page does not know %q", payload)
		}
	}
	secret := mustObject(t, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"x":"eA=="}}`)
	m := encode(t, &Encoder{Redactor: redact.New(make([]byte, 32))}, Event{Type: Added, Resource: secrets, Object: secret})
	var doc struct{ Data map[string]string }
	if err := json.Unmarshal(m.Data, &doc); err != nil {
		t.Fatal(err)
	}
	prefix, digits, _ := strings.Cut(doc.Data["x"], ":")
	if want := "`" + prefix + ":<" + strconv.Itoa(len(digits)) + " hex digits>`"; !strings.Contains(section, want) {
		t.Errorf("the page does not say %s", want)
	}
}

// The example is what the code makes of two states.
func TestDebeziumPage(t *testing.T) {
	_, example, _ := strings.Cut(eventsPage(t, "The payload `debezium`"), "```json\n")
	example, _, _ = strings.Cut(example, "\n```")
	state := func(rv, replicas string) *object.Object {
		return mustObject(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop",`+
			`"uid":"6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11","resourceVersion":"`+rv+`"},"spec":{"replicas":`+replicas+`}}`)
	}
	m := encode(t, &Encoder{Cluster: "prod-eu-1", Payload: PayloadDebezium}, Event{
		Type: Updated, Resource: deployments, Object: state("48213", "3"), Old: state("48107", "1"),
		Time: time.Date(2026, 11, 20, 12, 25, 57, 861204311, time.UTC),
	})
	var want, got any
	if err := errors.Join(json.Unmarshal(m.Data, &want), json.Unmarshal([]byte(example), &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("example (-code +page):\n%s\n%s", diff, m.Data)
	}
}

// The example is what the code makes of two states, and the table has its keys.
func TestChangePage(t *testing.T) {
	section := eventsPage(t, "The payload `change`")
	_, example, _ := strings.Cut(section, "```json\n")
	example, _, _ = strings.Cut(example, "\n```")
	state := func(rv, replicas, image, managers string) *object.Object {
		return withManagers(
			t,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11","resourceVersion":"`+rv+`","managedFields":[`+managers+`]},`+
				`"spec":{"replicas":`+replicas+`,"template":{"spec":{"containers":[{"name":"web","image":"`+image+`"}]}}}}`,
		)
	}
	after := state(
		"48213",
		"3",
		"web:2",
		`{"manager":"ci","operation":"Apply","time":"2026-11-20T12:25:57Z","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:image":{},"f:name":{}}}}}}}},`+
			`{"manager":"autoscaler","operation":"Update","subresource":"scale","time":"2026-11-20T11:02:41Z","fieldsV1":{"f:spec":{"f:replicas":{}}}}`,
	)
	m := encode(
		t,
		&Encoder{Payload: PayloadChange},
		Event{Type: Updated, Resource: deployments, Object: after, Old: state("48107", "3", "web:1", "")},
	)
	var want, got any
	if err := json.Unmarshal(m.Data, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(example), &got); err != nil {
		t.Fatalf("%v\n%s", err, m.Data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("example (-code +page):\n%s\n%s", diff, m.Data)
	}
	var keys []string
	for _, row := range rows(section) {
		keys = append(keys, codes(row[0])...)
	}
	slices.Sort(keys)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want.(map[string]any))), keys); diff != "" {
		t.Errorf("keys (-code +page):\n%s", diff)
	}
}

// The table names the attributes of a context.
func TestEnrichmentPage(t *testing.T) {
	section := eventsPage(t, "Enrichment")
	table := fmt.Sprint(rows(section))
	testContext.attributes(func(name, _ string) bool {
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("the table lacks the attribute %s", name)
		}
		return true
	})
	if !strings.Contains(section, strconv.Itoa(maxLabels>>10)+" KiB") || !strings.Contains(section, "`"+moreLabels+"`") {
		t.Error("the page does not say where labels end")
	}
}

// The page links all schemas.
func TestSchemasPage(t *testing.T) {
	section := eventsPage(t, "Schemas")
	for _, name := range schemas.Names() {
		if !strings.Contains(section, "[`"+name+"`](schemas/v1/"+name+".json)") {
			t.Errorf("the page does not link %q", name)
		}
	}
	compiled, events := payloadSchema(t, "cloudevent", true), 0
	for _, block := range strings.Split(eventsPage(t, "Examples"), "\n{\n")[1:] {
		document, _, _ := strings.Cut(block, "\n}\n")
		events++
		if err := compiled.Validate(unmarshal(t, []byte("{"+document+"}"))); err != nil {
			t.Errorf("%v\n%s", err, document)
		}
	}
	if events < 9 {
		t.Errorf("%d events", events)
	}
}

// The reasons are the constants of the code.
func TestGapsPage(t *testing.T) {
	var got, want []string
	for _, row := range rows(eventsPage(t, "Gap events")) {
		got = append(got, codes(row[0])...)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Reason") {
			reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, reason)
		}
		return true
	})
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("reasons (-code +page):\n%s", diff)
	}
}

func TestTemplatesPage(t *testing.T) {
	section := eventsPage(t, "Subjects, topics, keys")
	first, _, _ := strings.Cut(section, ". ")
	variableNames := names(variables())
	names := make([]string, 0, len(variableNames))
	for _, name := range codes(first) {
		names = append(names, strings.Trim(name, "{}"))
	}
	if diff := cmp.Diff(variableNames, names); diff != "" {
		t.Errorf("variables (-code +page):\n%s", diff)
	}
	subject, err := ParseTemplate("{name}.{group}.{namespace}", EscapeSubject)
	if err != nil {
		t.Fatal(err)
	}
	ca := mustObject(
		t,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"kube-root-ca.crt","uid":"u","resourceVersion":"1"}}`,
	)
	gap := &Message{Type: Gap, Resource: pods}
	synced := &Message{Type: Synced, Resource: pods}
	for text, m := range map[string]*Message{
		"kube-root-ca%2Ecrt.core._": encode(t, &Encoder{}, Event{Type: Added, Resource: pods, Object: ca}), "_gap.core._": gap, "_synced.core._": synced, "_progress.core._": {Type: Progress, Resource: pods},
	} {
		if got := subject.Expand(m); got != text {
			t.Errorf("%q, the page says %q", got, text)
		}
		if token, _, _ := strings.Cut(text, "."); !strings.Contains(section, "`"+token+"`") {
			t.Errorf("the page does not show %q", token)
		}
	}
}
