package object

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// chunks reads a stream in pieces of random size, as a network does.
type chunks struct {
	rest string
	rand *rand.Rand
	max  int
}

func chunked(stream string, seed uint64, most int) io.ReadCloser {
	return io.NopCloser(&chunks{stream, rand.New(rand.NewPCG(seed, 1)), most})
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:min(len(c.rest), 1+c.rand.IntN(c.max))])
	c.rest = c.rest[n:]
	return n, nil
}

type result struct {
	Events []modelEvent
	Errors []string // of documents that were skipped
	End    string
}

// decodeWatch reads a stream to its end and skips what is malformed.
func decodeWatch(body io.ReadCloser, rv string) (r result) {
	d := NewWatchDecoder(body, WatchOptions{ResourceVersion: rv, Malformed: func(err error) error {
		r.Errors = append(r.Errors, err.Error())
		return nil
	}})
	for {
		eventType, obj, err := d.Decode()
		if err != nil {
			r.End = err.Error()
			return r
		}
		r.Events = append(r.Events, eventOf(eventType, obj))
	}
}

func eventOf(eventType watch.EventType, obj runtime.Object) modelEvent {
	e := modelEvent{Type: string(eventType)}
	switch obj := obj.(type) {
	case *Object:
		e.Object = found(obj)
	case *metav1.Status:
		e.Status = obj.Message
	}
	return e
}

// decodeStock reads a stream with client-go's stream decoder over the serializer.
func decodeStock(body io.ReadCloser) (r result) {
	info := NegotiatedSerializer().SupportedMediaTypes()[0]
	d := streaming.NewDecoder(info.StreamSerializer.Framer.NewFrameReader(body), info.StreamSerializer.Serializer)
	for {
		var got metav1.WatchEvent
		if _, _, err := d.Decode(nil, &got); err != nil {
			r.End = err.Error()
			return r
		}
		obj, err := runtime.Decode(info.Serializer, got.Object.Raw)
		if err != nil {
			r.End = err.Error()
			return r
		}
		r.Events = append(r.Events, eventOf(watch.EventType(got.Type), obj))
	}
}

// checkWatch compares the decoding of a stream with the model, for any bytes, split anywhere.
func checkWatch(t *testing.T, stream string, seed uint64, rv string) {
	t.Helper()
	whole := decodeWatch(io.NopCloser(strings.NewReader(stream)), rv)
	for _, most := range []int{1, 7, 4096} {
		if most == 1 && len(stream) > 1<<16 {
			continue
		}
		if diff := cmp.Diff(whole, decodeWatch(chunked(stream, seed, most), rv)); diff != "" {
			t.Fatalf("stream %q, in pieces of up to %d: -whole +pieces\n%s", stream, most, diff)
		}
	}
	want, ok := modelWatch([]byte(stream), rv != "" && rv != "0")
	if !ok {
		return // not JSON objects all the way: it ended, without a panic
	}
	if diff := cmp.Diff(want, whole.Events); diff != "" {
		t.Fatalf("stream %q: -model +found\n%s", stream, diff)
	}
	if whole.End != io.EOF.Error() {
		t.Fatalf("stream %q ended with %s", stream, whole.End)
	}
	for _, e := range want {
		if e.Object != nil && e.Object.ResourceVersion == "" || e.Object == nil && e.Status == "" {
			return // such objects are refused by one and not by the other; a Status of another kind is no Status
		}
		if e.Object != nil && e.Object.Kind == "Status" || e.Object == nil && !strings.Contains(stream, `"kind":"Status","apiVersion":"v1"`) {
			return
		}
	}
	if stock := decodeStock(chunked(stream, seed, 4096)); rv == "" && whole.Errors == nil {
		if diff := cmp.Diff(want, stock.Events); diff != "" {
			t.Fatalf("stream %q: -model +client-go's stream decoder\n%s", stream, diff)
		}
	}
}

func event(eventType, object string) string {
	return `{"type":"` + eventType + `","object":` + object + `}`
}

func small(name string) string {
	return `{"kind":"A","apiVersion":"v1","metadata":{"name":"` + name + `","resourceVersion":"5"}}`
}

// streams are watches that are JSON objects all the way.
func streams(tb testing.TB) map[string]string {
	pod, cm, status, bookmark := read(tb, "pod.json"), read(tb, "configmap.json"), read(tb, "status.json"), read(tb, "bookmark.json")
	s := map[string]string{
		"usual":              event("ADDED", pod) + "\n" + event("MODIFIED", cm) + "\n" + event("BOOKMARK", bookmark) + "\n" + event("DELETED", pod) + "\n" + event("ERROR", status) + "\n",
		"no last newline":    event("ADDED", cm) + "\n" + event("ADDED", cm),
		"blank lines":        "\n\r\n" + event("ADDED", cm) + "\r\n \n\n" + event("DELETED", cm) + "\n\n",
		"no newlines":        event("ADDED", pod) + event("ADDED", cm) + event("BOOKMARK", bookmark),
		"two on a line":      event("ADDED", pod) + " " + event("ADDED", cm) + "\n" + event("BOOKMARK", bookmark) + "\n",
		"pretty":             "{\n  \"type\": \"ADDED\",\n  \"object\": {\n    \"metadata\": {\n      \"name\": \"a\"\n    }\n  }\n}\n" + event("ADDED", cm) + "\n",
		"newline in between": "{\"type\":\"ADDED\",\"object\":\n" + small("a") + "\n}\n" + event("ADDED", small("b")) + "\n",
		"other order":        `{"object":` + small("a") + `,"type":"ADDED"}` + "\n",
		"spaces":             ` { "type" : "ADDED" , "object" : ` + small("a") + ` } ` + "\n",
		"more members":       `{"type":"ADDED","object":` + small("a") + `,"more":{"object":{}}}` + "\n",
		"object twice":       `{"type":"ADDED","object":` + small("a") + `,"object":` + small("b") + `}` + "\n",
		"type twice":         `{"type":"ADDED","object":` + small("a") + `,"type":"DELETED"}` + "\n",
		"escaped":            `{"t\u0079pe":"ADD\u0045D","\u006fbject":` + small("a") + `}` + "\n",
		"case":               `{"Type":"ADDED","Object":` + small("a") + `}` + "\n" + event("ADDED", small("b")) + "\n",
		"unknown type":       event("RENAMED", small("a")) + "\n" + event("added", small("a")) + "\n" + event("ADDED", small("b")) + "\n",
		"no object":          `{"type":"ADDED"}` + "\n" + event("ADDED", "null") + "\n" + event("ADDED", "[]") + "\n" + event("ADDED", small("b")) + "\n",
		"no type":            `{"object":` + small("a") + "}\n{\"type\":null,\"object\":" + small("a") + "}\n{}\n" + event("ADDED", small("b")) + "\n",
		"odd error":          event("ERROR", `{"code":"x","message":"m"}`) + "\n" + event("ERROR", small("x")) + "\n",
		"no version":         event("ADDED", `{"metadata":null}`) + "\n" + event("ADDED", small("b")) + "\n" + event("ADDED", `{"metadata":null}`) + "\n" + event("ADDED", small("c")) + "\n",
		"long line":          event("ADDED", `{"metadata":{"name":"big","resourceVersion":"1"},"data":"`+strings.Repeat("x", 3*readBuffer)+`"}`) + "\n" + event("ADDED", small("b")) + "\n",
		"very long line":     event("ADDED", `{"metadata":{"name":"big","resourceVersion":"1"},"data":"`+strings.Repeat("x", 2*keepBuffer)+`"}`) + "\n" + strings.Repeat(event("ADDED", small("b"))+"\n", 2),
	}
	for name, raw := range odd() {
		s["odd: "+name] = event("ADDED", raw) + "\n" + event("MODIFIED", small("b")) + "\n"
	}
	return s
}

func TestWatch(t *testing.T) {
	for name, stream := range streams(t) {
		t.Run(name, func(t *testing.T) {
			if _, ok := modelWatch([]byte(stream), false); !ok {
				t.Fatal("the model does not take it for JSON")
			}
			checkWatch(t, stream, 1, "")
			checkWatch(t, stream, 2, "5")
			checkWatch(t, stream, 3, "0")
		})
	}
}

// Documents that are no watch event, between good ones: each is reported once, and all good ones arrive.
func TestWatchMalformed(t *testing.T) {
	for name, bad := range map[string]string{
		"text":                       "<html>Bad gateway</html>\n",
		"several lines of text":      "<html>\n\n<body>\n",
		"torn in a string":           `{"type":"ADDED","object":{"metadata":{"name":"a` + "\n",
		"torn between members":       `{"type":"ADDED","object":{` + "\n",
		"torn behind a key":          `{"type":"ADDED","object":{"a":` + "\n",
		"torn, many brackets":        `{"type":"ADDED","object":{"a":[[[{"b":{` + "\n",
		"one bracket too many":       event("ADDED", small("a")) + "}\n",
		"a number":                   "5\n",
		"null":                       "null\n",
		"an array":                   "[" + event("ADDED", small("a")) + "]\n",
		"bytes":                      "\x00\x01\xff{\n",
		"valid JSON, no event":       `{"kind":"Status","apiVersion":"v1"}` + "\n",
		"an object without version":  event("MODIFIED", `{"metadata":{"name":"a"}}`) + "\n",
		"a bookmark without version": event("BOOKMARK", `{}`) + "\n",
		"pretty, with a mistake":     "{\n \"type\": \"ADDED\",\n \"object\": { \"a\" 1 }\n}\n",
		"not quite pretty":           "{\n{\n{\n",
	} {
		t.Run(name, func(t *testing.T) {
			stream := event("ADDED", small("before")) + "\n" + bad + event("ADDED", small("after")) + "\n" + bad + event("ADDED", small("end")) + "\n" + event("ADDED", small("last")) + "\n"
			r := decodeWatch(io.NopCloser(strings.NewReader(stream)), "5")
			var names []string
			for _, e := range r.Events {
				names = append(names, e.Object.Name)
			}
			want := []string{"before", "after", "end", "last"}
			if name == "one bracket too many" {
				want = []string{"before", "a", "after", "a", "end", "last"} // the event is whole; the bracket is not
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Error(diff)
			}
			if n := 2 * strings.Count(bad, "\n"); len(r.Errors) < 2 || len(r.Errors) > n {
				t.Errorf("%d reports: %q", len(r.Errors), r.Errors)
			}
			if r.End != io.EOF.Error() {
				t.Error(r.End)
			}
		})
	}
}

// The lines behind a torn document are looked at once each, not joined again and again: that would be quadratic.
func TestWatchTornDocumentCostsOnce(t *testing.T) {
	r := decodeWatch(io.NopCloser(strings.NewReader(strings.Repeat("{\"a\":\n", 100)+"}\n"+event("ADDED", small("a"))+"\n")), "")
	joined := 0
	for _, report := range r.Errors {
		if strings.Contains(report, "invalid character") {
			joined++
		}
	}
	if len(r.Events) != 1 || len(r.Errors) != 101 || joined != 1 {
		t.Errorf("%d events, %d reports, %d of them of joined lines: %q", len(r.Events), len(r.Errors), joined, r.Errors)
	}
}

func TestWatchEndsOnMalformed(t *testing.T) {
	stream := "garbage\n" + event("ADDED", small("a")) + "\n"
	if _, _, err := NewWatchDecoder(io.NopCloser(strings.NewReader(stream)), WatchOptions{}).Decode(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without a function: %v", err)
	}
	mine := errors.New("mine")
	var reported error
	d := NewWatchDecoder(io.NopCloser(strings.NewReader(stream)), WatchOptions{Malformed: func(err error) error {
		reported = err
		return mine
	}})
	if _, _, err := d.Decode(); !errors.Is(err, mine) || !errors.Is(reported, ErrMalformed) {
		t.Errorf("%v, reported %v", err, reported)
	}
	if strings.Contains(fmt.Sprint(reported), "garbage") {
		t.Errorf("the report quotes the document, which may hold a secret: %v", reported)
	}
}

// A stream that is cut off within a document ends with io.ErrUnexpectedEOF, and everything before the cut arrives.
func TestWatchCutOff(t *testing.T) {
	first, second := event("ADDED", small("a"))+"\n", event("ADDED", small("b"))
	for n := 1; n < len(second); n++ {
		r := decodeWatch(io.NopCloser(strings.NewReader(first+second[:n])), "")
		if len(r.Events) != 1 || r.End != io.ErrUnexpectedEOF.Error() || r.Errors != nil {
			t.Fatalf("cut at %d: %+v", n, r)
		}
	}
	failing := io.NopCloser(io.MultiReader(strings.NewReader(first+second[:9]), failingReader{}))
	if r := decodeWatch(failing, ""); len(r.Events) != 1 || r.End != errBroken.Error() {
		t.Errorf("%+v", r)
	}
}

var errBroken = errors.New("connection broken")

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errBroken }

// Objects beyond the 16 MiB of client-go's stream decoder.
func TestWatchBigDocuments(t *testing.T) {
	big := func(n int) io.Reader {
		const before = `{"type":"ADDED","object":{"metadata":{"name":"big","resourceVersion":"1"},"data":"`
		return io.MultiReader(strings.NewReader(before), io.LimitReader(letters{}, int64(n)), strings.NewReader("\"}}\n"))
	}
	small := event("ADDED", small("b")) + "\n"
	for _, test := range []struct {
		size   int
		events int
		errors int
	}{{20 << 20, 2, 0}, {MaxDocument, 1, 1}} {
		r := decodeWatch(io.NopCloser(io.MultiReader(big(test.size), strings.NewReader(small))), "")
		if len(r.Events) != test.events || len(r.Errors) != test.errors || r.End != io.EOF.Error() {
			t.Errorf("%d bytes: %d events, errors %q, end %s", test.size, len(r.Events), r.Errors, r.End)
		}
		if test.events == 2 && len(r.Events[0].Object.Raw) < test.size {
			t.Error("the object was cut")
		}
	}
	pretty := io.MultiReader(strings.NewReader("{\n"), big(MaxDocument))
	if r := decodeWatch(io.NopCloser(io.MultiReader(pretty, strings.NewReader(small))), ""); len(r.Events) != 1 || len(r.Errors) == 0 {
		t.Errorf("%d events, errors %q, end %s", len(r.Events), r.Errors, r.End)
	}
	lines := []io.Reader{strings.NewReader("{\n")}
	for range MaxDocument/(1<<20) + 1 {
		lines = append(lines, strings.NewReader(`"k":"`), io.LimitReader(letters{}, 1<<20), strings.NewReader("\",\n"))
	}
	lines = append(lines, strings.NewReader("\"k\":1}\n"+small))
	if r := decodeWatch(io.NopCloser(io.MultiReader(lines...)), ""); len(r.Events) != 1 || len(r.Errors) == 0 || !strings.Contains(r.Errors[0], "MaxDocument") {
		t.Errorf("%d events, errors %q, end %s", len(r.Events), r.Errors, r.End)
	}
	stock := decodeStock(io.NopCloser(io.MultiReader(big(20<<20), strings.NewReader(small))))
	if stock.End != streaming.ErrObjectTooLarge.Error() {
		t.Errorf("client-go's stream decoder: %s", stock.End)
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
