package event

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"github.com/deltabridge/deltabridge/test/scale"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// secretDocuments makes objects with secret values in odd forms. Each secret has the mark in it, as text or in base64,
// or is a number with the digits.
type secretDocuments struct{ *rand.Rand }

const (
	mark       = "hUnTeR2"
	markDigits = "918273645"
)

func (g secretDocuments) pick(choices ...string) string { return choices[g.IntN(len(choices))] }

// text is a JSON string, some of its characters escaped.
func (g secretDocuments) text(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r < ' ' || r == '"' || r == '\\' || r < 0x80 && g.IntN(8) == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '/' && g.IntN(2) == 0:
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// key is a key in some spelling.
func (g secretDocuments) key(name string, fold bool) string {
	if fold && g.IntN(4) == 0 {
		name = g.pick(strings.ToUpper(name), strings.ToLower(name), strings.ToUpper(name[:1])+name[1:])
	}
	if g.IntN(4) == 0 {
		return g.text(name)
	}
	return `"` + name + `"`
}

func (g secretDocuments) space() string { return g.pick("", "", "", " ", "\n\t", "\r\n") }

// value is a secret, or a form with secrets in it.
func (g secretDocuments) value(depth int) string {
	switch g.IntN(12) {
	case 0:
		return "null"
	case 1:
		return g.pick("-", "") + markDigits + g.pick("", ".5", "e9", "00000000000000000000")
	case 2:
		return g.text(mark + strings.Repeat(mark, g.IntN(600)))
	case 3:
		return g.text("\u00fc\u4e16\U0001f511" + mark + "\u2028\x00\ufffd")
	case 4, 5:
		if depth > 3 {
			return `""`
		}
		var entries []string
		for range g.IntN(4) {
			entries = append(entries, g.space()+g.value(depth+1))
		}
		return "[" + strings.Join(entries, ",") + g.space() + "]"
	case 6:
		if depth > 3 {
			return "{}"
		}
		return g.members(g.pick("a", "b", "data", "kind"), depth)
	case 7:
		return g.text("hmac-sha256:" + mark)
	case 8:
		return g.text(`{"data":{"a":"` + mark + `"}}`)
	default:
		return g.text(base64.StdEncoding.EncodeToString([]byte(mark + mark + mark)))
	}
}

// members is an object of secrets; some keys come twice.
func (g secretDocuments) members(name string, depth int) string {
	var entries []string
	for range 1 + g.IntN(4) {
		entries = append(
			entries,
			g.space()+g.key(g.pick(name, name+"\u00e9", "x-"+name), false)+g.space()+":"+g.space()+g.value(depth+1),
		)
	}
	return "{" + strings.Join(entries, ",") + g.space() + "}"
}

// annotations has the last applied configuration, and what is no secret.
func (g secretDocuments) annotations(fold bool) string {
	return "{" + `"team":"shop",` + g.key("kubectl.kubernetes.io/last-applied-configuration", fold) + ":" +
		g.pick(g.text(`{"kind":"Secret","stringData":{"a":"`+mark+`"}}`), g.value(0)) + "}"
}

// secret is a Secret.
func (g secretDocuments) secret(version int) string {
	parts := []string{
		`"kind":"Secret"`,
		`"apiVersion":"v1"`,
		`"type":"Opaque"`,
		fmt.Sprintf(
			`"metadata":{"name":"db","namespace":"shop","uid":"u","resourceVersion":"%d","annotations":%s}`,
			version,
			g.annotations(true),
		),
	}
	for range 1 + g.IntN(3) {
		value := g.members("a", 0)
		if g.IntN(6) == 0 {
			value = g.value(0)
		}
		parts = append(parts, g.key(g.pick("data", "stringData"), true)+":"+value)
	}
	g.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return "{" + g.space() + strings.Join(parts, ","+g.space()) + "}"
}

// custom is a custom resource with secrets where the rule of the test says.
func (g secretDocuments) custom(version int) string {
	return fmt.Sprintf(
		`{"kind":"Account","apiVersion":"example.com/v1","metadata":{"name":"db","namespace":"shop","uid":"u","resourceVersion":"%d","annotations":%s},"spec":{"user":"admin",%s:%s,"env":[{"name":"x","value":%s},{"name":"y"}]},"status":{"template":{"metadata":{"annotations":%s}}}}`,
		version,
		g.annotations(false),
		g.key("auth", true),
		g.members("a", 0),
		g.value(0),
		g.annotations(false),
	)
}

// leaks finds a secret in bytes, and in the texts and numbers of the JSON that they are.
func leaks(b []byte) string {
	encoded := base64.StdEncoding.EncodeToString([]byte(mark + mark + mark))
	for _, form := range []string{mark, markDigits, encoded} {
		if bytes.Contains(b, []byte(form)) {
			return form
		}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		for _, form := range []string{mark, markDigits, encoded} {
			if strings.Contains(fmt.Sprint(token), form) {
				return form
			}
		}
	}
}

// TestNoSecretInAnyMessage: whatever form secrets have, none is in a payload, an attribute, a patch, an error, or in
// what lies in a spill.
func TestNoSecretInAnyMessage(t *testing.T) {
	paths := make([]redact.Path, 0, 2)
	for _, text := range []string{"spec.auth", "spec.env[*].value"} {
		p, err := redact.ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	redactor := redact.New([]byte(strings.Repeat("k", 32)), redact.Rule{Paths: paths})
	g := secretDocuments{rand.New(rand.NewPCG(1, 2))}
	accounts := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "accounts"}
	count, shown, objects := 0, 0, scale.Of(60, 250)
	for n := range objects {
		resource, old, now := secrets, g.secret(1), g.secret(2)
		if n%2 == 1 {
			resource, old, now = accounts, g.custom(1), g.custom(2)
		}
		if leaks([]byte(now)) != "" {
			shown++
		}
		for _, e := range []*Encoder{
			{Redactor: redactor},
			{Redactor: redactor, Payload: PayloadMetadata, Content: ContentStructured},
			{Redactor: redactor, Payload: PayloadChange},
			{Redactor: redactor, Payload: PayloadDebezium},
			{Redactor: redactor, Payload: PayloadChange, Content: ContentStructured},
		} {
			for _, ev := range []Event{
				{Type: Added}, {Type: Updated}, {Type: Deleted}, {Type: Deleted, LeftAt: "3"},
			} {
				ev.Resource, ev.Time, ev.Object = resource, seen, mustObject(t, now)
				if ev.Type == Updated {
					ev.Old = mustObject(t, old)
				}
				noLeak(t, e, ev, now)
				count++
			}
		}
	}
	t.Logf("%d messages; %d of %d objects had a secret in them", count, shown, objects)
	if shown < objects*24/25 {
		t.Error("too few of the objects have secrets in them")
	}
}

func noLeak(t *testing.T, e *Encoder, ev Event, document string) {
	t.Helper()
	m, err := e.Encode(ev)
	if err != nil {
		t.Fatalf("%v (of %.2000s)", err, document)
	}
	body := m.Body()
	if !json.Valid(body) {
		t.Fatalf("no JSON: %.2000s\nof %.2000s", body, document)
	}
	stored, err := m.AppendStored(nil)
	if err != nil {
		t.Fatal(err)
	}
	what := map[string][]byte{"the body": body, "the spill, and a dead letter": stored}
	if reduced, err := Reduce(m, Marks{}); err == nil {
		what["the metadata alone"] = reduced.Body()
	} else if e.Payload != PayloadMetadata && !errors.Is(err, errNotSmaller) {
		t.Fatalf("%v (of %.2000s)", err, document)
	}
	what["the gap in its place"] = RefusalGap(m, ReasonOversize, "m", "d").Body()
	m.Attributes(func(name, value string) bool { what[name] = []byte(value); return true })
	for name, b := range what {
		if form := leaks(b); form != "" {
			t.Fatalf("%s has %s: %.2000s\nof %.2000s", name, form, b, document)
		}
	}
}

// FuzzNoSecretInAnyMessage changes the bytes of an object: what is still one has its values hidden, or is not sent.
func FuzzNoSecretInAnyMessage(f *testing.F) {
	g := secretDocuments{rand.New(rand.NewPCG(3, 4))}
	for range 50 {
		f.Add([]byte(g.secret(1)))
	}
	redactor := redact.New([]byte(strings.Repeat("k", 32)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := object.New(raw)
		if err != nil {
			return
		}
		hidden, err := redactor.Redact(secrets, o, o.Raw)
		if err != nil {
			if strings.Contains(err.Error(), mark) && !strings.Contains(o.Name+o.Namespace, mark) {
				t.Fatal(err)
			}
			return
		}
		if json.Valid(o.Raw) != json.Valid(hidden) && json.Valid(o.Raw) {
			t.Fatalf("%s\nis no JSON any more: %s", o.Raw, hidden)
		}
		again, err := redactor.Redact(secrets, o, hidden)
		if err != nil || !bytes.Equal(again, hidden) {
			t.Fatalf("a second time: %s, %v\nonce: %s", again, err, hidden)
		}
		var doc map[string]json.RawMessage
		if json.Unmarshal(hidden, &doc) != nil {
			return
		}
		for name, value := range doc {
			if strings.EqualFold(name, "data") && leaks(value) != "" && !bytes.Contains(value, []byte(`":`)) { // keys stay
				t.Fatalf("%s", value)
			}
		}
	})
}
