package object

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read returns a document of testdata, as an API server sends it, without a newline.
func read(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// odd are JSON objects that are valid and that no API server should send.
func odd() map[string]string {
	return map[string]string{
		"empty":                 `{}`,
		"no metadata":           `{"kind":"A","apiVersion":"v1"}`,
		"null metadata":         `{"kind":"A","apiVersion":"v1","metadata":null}`,
		"metadata is a string":  `{"kind":"A","apiVersion":"v1","metadata":"{\"name\":\"x\"}"}`,
		"metadata is an array":  `{"metadata":[{"name":"x"}],"kind":"A"}`,
		"empty metadata":        `{"metadata":{ },"kind":"A"}`,
		"duplicate name":        `{"metadata":{"name":"a","name":"b","uid":"u"}}`,
		"duplicate metadata":    `{"metadata":{"name":"a","uid":"u","ownerReferences":[{"uid":"o"}],"managedFields":[{"manager":"m"}]},"spec":{},"metadata":{"name":"b"}}`,
		"last metadata is null": `{"metadata":{"name":"a"},"metadata":null}`,
		"duplicate kind":        `{"kind":"A","kind":"B","apiVersion":"v1","apiVersion":"g/v2"}`,
		"last kind is a number": `{"kind":"A","kind":5}`,
		"escaped keys":          `{"\u006detadata":{"n\u0061me":"x","\u0075id":"u","managed\u0046ields":[{"m\u0061nager":"k"}]},"k\u0069nd":"A"}`,
		"escaped values":        `{"metadata":{"name":"a\u0062\n\"\\\/","uid":"\ud83d\ude00 \ud83d"}}`,
		"case variants":         `{"Metadata":{"name":"a"},"METADATA":{"name":"b"},"Kind":"K","metadata":{"Name":"c","UID":"d","ManagedFields":[1]}}`,
		"uid is a number":       `{"metadata":{"name":"a","uid":5,"resourceVersion":7}}`,
		"uid is an object":      `{"metadata":{"name":"a","uid":{"uid":"x"},"namespace":["n"]}}`,
		"null everywhere":       `{"kind":null,"apiVersion":null,"metadata":{"name":null,"uid":null,"ownerReferences":null,"managedFields":null}}`,
		"invalid UTF-8":         "{\"metadata\":{\"name\":\"a\xff\xc0b\",\"u\xffid\":\"x\"},\"kind\":\"K\xed\xa0\x80\"}",
		"UTF-8":                 `{"metadata":{"name":"café ☃ 😀"}}`,
		"deep": `{"spec":` + strings.Repeat(
			`[{"a":`,
			1500,
		) + `1` + strings.Repeat(
			`}]`,
			1500,
		) + `,"metadata":{"name":"x"}}`,
		"huge numbers":             `{"spec":{"a":1e999,"b":123456789012345678901234567890,"c":-0,"d":1E-400},"metadata":{"generation":99999999999999999999,"name":"x"}}`,
		"owners of all kinds":      `{"metadata":{"ownerReferences":[{"uid":"a"},5,null,{"uid":7},{},{"uid":"b","uid":"c"},[{"uid":"x"}],{"uid":""},{"\u0075id":"d"}]}}`,
		"owners twice":             `{"metadata":{"ownerReferences":[{"uid":"a"}],"ownerReferences":[{"uid":"b"}]}}`,
		"owners twice, last null":  `{"metadata":{"ownerReferences":[{"uid":"a"}],"ownerReferences":null}}`,
		"owners are an object":     `{"metadata":{"ownerReferences":{"uid":"a"}}}`,
		"managed fields alone":     `{"metadata":{"managedFields":[{"manager":"m"}]}}`,
		"managed fields first":     `{"metadata":{"managedFields":[{"manager":"m"}],"name":"x"}}`,
		"managed fields last":      `{"metadata":{"name":"x","managedFields":[{"manager":"m"}]}}`,
		"managed fields in pairs":  `{"metadata":{"managedFields":1,"managedFields":[{"manager":"m"}],"name":"x","managedFields":2,"managedFields":3,"uid":"u"}}`,
		"managed fields, twice":    `{"metadata":{"managedFields":[{"manager":"m"}], "managedFields" : [{"manager":"n"}] }}`,
		"managed fields elsewhere": `{"managedFields":[1],"spec":{"metadata":{"managedFields":[2]}},"metadata":{"name":"x","labels":{"managedFields":"3"}}}`,
		"managers by time":         `{"metadata":{"managedFields":[{"manager":"old","time":"2024-01-01T00:00:00Z"},{"manager":"new","time":"2025-01-01T00:00:00Z"},{"manager":"mid","time":"2024-06-01T00:00:00Z"},{"manager":"none"},{"manager":"bad","time":"yesterday"}]}}`,
		"managers with zones":      `{"metadata":{"managedFields":[{"manager":"later","time":"2024-01-01T00:00:00-05:00"},{"manager":"earlier","time":"2024-01-01T03:00:00Z"}]}}`,
		"managers at one time":     `{"metadata":{"managedFields":[{"manager":"a","time":"2024-01-01T00:00:00Z"},{"manager":"b","time":"2024-01-01T00:00:00Z"}]}}`,
		"managers without time":    `{"metadata":{"managedFields":[{"manager":"a"},{"manager":"b"},7,{"manager":5}]}}`,
		"pretty":                   "\n{\n  \"kind\" : \"A\" ,\n\t\"metadata\" : {\r\n    \"name\" : \"x\" ,\n    \"managedFields\" : [ { \"manager\" : \"m\" } ] ,\n    \"uid\" : \"u\"\n  }\n}\n",
		"pretty, managed first":    "{\n  \"metadata\": {\n    \"managedFields\": [],\n    \"name\": \"x\"\n  }\n}",
		"apiVersion is odd":        `{"apiVersion":"a/b/c","kind":"K"}`,
		"apiVersion is a slash":    `{"apiVersion":"/","kind":"K"}`,
		"apiVersion without group": `{"apiVersion":"/v1","kind":"K"}`,
		"apiVersion, no version":   `{"apiVersion":"g/"}`,
		"backslashes":              `{"data":{"a":"\\","b":"\\\"","c":"\\\\\"}{","d":""},"metadata":{"name":"x"}}`,
		"brackets in strings":      `{"data":{"}":"]","{":"[\"metadata\":{\"name\":\"no\"}"},"metadata":{"name":"x"}}`,
		"names of watch events":    `{"type":"ADDED","object":{"metadata":{"name":"x"}}}`,
		"empty key":                `{"":{"":1},"metadata":{"":"","name":"x"}}`,
	}
}

// notObjects are documents that are not one JSON object.
func notObjects() []string {
	return []string{
		``,
		` `,
		`null`,
		`5`,
		`"x"`,
		`[]`,
		`[{}]`,
		`{`,
		`{"a"`,
		`{"a":`,
		`{"a":1`,
		`{"a":1,`,
		`{"a":"x`,
		`{"a":"x\`,
		`{"a":"x\"}`,
		`{"a":{}`,
		`{}}`,
		`{} {}`,
		`{},`,
		`}`,
		`{"metadata":{"name":"x"}`,
		`{"metadata":{"managedFields":[`,
		`{"metadata":{"name":`,
		`{a:1}`,
		`{"a" 1}`,
		`{"a":}`,
		`{"a":1 "b":2}`,
		`<html></html>`,
		"\x00",
		`{"metadata":{"ownerReferences":[{"uid":"x"`,
	}
}
