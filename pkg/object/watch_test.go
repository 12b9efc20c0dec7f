package object

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltabridge/deltabridge/test/scale"
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
	End    string
}

// decodeWatch reads a stream to its end, or to the first document that is not an event.
func decodeWatch(body io.ReadCloser, rv string) (r result) {
	d := NewWatchDecoder(body, rv, false)
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
	want, ended, valid := modelWatch([]byte(stream), rv != "" && rv != "0")
	got := whole.Events
	if !valid && len(got) > len(want) {
		return // it has passed bytes that are not JSON as they are
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("stream %q: -model +found\n%s", stream, diff)
	}
	malformed := strings.HasPrefix(whole.End, ErrMalformed.Error())
	if ended != (whole.End == io.EOF.Error()) || !ended && !malformed && whole.End != io.ErrUnexpectedEOF.Error() {
		t.Fatalf("stream %q ended with %s", stream, whole.End)
	}
}

func event(eventType, object string) string {
	return `{"type":"` + eventType + `","object":` + object + `}`
}

func small(name string) string {
	return `{"kind":"A","apiVersion":"v1","metadata":{"name":"` + name + `","resourceVersion":"5"}}`
}

// streams are watches that are valid JSON all the way, not all of them as an API server writes it.
func streams(tb testing.TB) map[string]string {
	pod, cm, status, bookmark := read(
		tb,
		"pod.json",
	), read(
		tb,
		"configmap.json",
	), read(
		tb,
		"status.json",
	), read(
		tb,
		"bookmark.json",
	)
	s := map[string]string{
		"usual": event(
			"ADDED",
			pod,
		) + "\n" + event(
			"MODIFIED",
			cm,
		) + "\n" + event(
			"BOOKMARK",
			bookmark,
		) + "\n" + event(
			"DELETED",
			pod,
		) + "\n" + event(
			"ERROR",
			status,
		) + "\n",
		"no last newline": event("ADDED", cm) + "\n" + event("ADDED", cm),
		"blank lines":     "\n\r\n" + event("ADDED", cm) + "\r\n \n\n" + event("DELETED", cm) + "\n\n",
		"no newlines":     event("ADDED", pod) + event("ADDED", cm) + event("BOOKMARK", bookmark),
		"two on a line":   event("ADDED", pod) + " " + event("ADDED", cm) + "\n" + event("BOOKMARK", bookmark) + "\n",
		"pretty": "{\n  \"type\": \"ADDED\",\n  \"object\": {\n    \"metadata\": {\n      \"name\": \"a\"\n    }\n  }\n}\n" + event(
			"ADDED",
			cm,
		) + "\n",
		"newline in between": "{\"type\":\"ADDED\",\"object\":\n" + small("a") + "\n}\n" + event("ADDED", small("b")) + "\n",
		"other order":        `{"object":` + small("a") + `,"type":"ADDED"}` + "\n",
		"spaces":             ` { "type" : "ADDED" , "object" : ` + small("a") + ` } ` + "\n",
		"more members":       `{"type":"ADDED","object":` + small("a") + `,"more":{"object":{}}}` + "\n",
		"object twice":       `{"type":"ADDED","object":` + small("a") + `,"object":` + small("b") + `}` + "\n",
		"type twice":         `{"type":"ADDED","object":` + small("a") + `,"type":"DELETED"}` + "\n",
		"escaped":            `{"t\u0079pe":"ADD\u0045D","\u006fbject":` + small("a") + `}` + "\n",
		"case":               `{"Type":"ADDED","Object":` + small("a") + `}` + "\n" + event("ADDED", small("b")) + "\n",
		"unknown type": event(
			"RENAMED",
			small("a"),
		) + "\n" + event(
			"added",
			small("a"),
		) + "\n" + event(
			"ADDED",
			small("b"),
		) + "\n",
		"no object": `{"type":"ADDED"}` + "\n" + event(
			"ADDED",
			"null",
		) + "\n" + event(
			"ADDED",
			"[]",
		) + "\n" + event(
			"ADDED",
			small("b"),
		) + "\n",
		"no type": `{"object":` + small(
			"a",
		) + "}\n{\"type\":null,\"object\":" + small(
			"a",
		) + "}\n{}\n" + event(
			"ADDED",
			small("b"),
		) + "\n",
		"odd error": event("ERROR", `{"code":"x","message":"m"}`) + "\n" + event("ERROR", small("x")) + "\n",
		"no version": event(
			"ADDED",
			`{"metadata":null}`,
		) + "\n" + event(
			"ADDED",
			small("b"),
		) + "\n" + event(
			"ADDED",
			`{"metadata":null}`,
		) + "\n" + event(
			"ADDED",
			small("c"),
		) + "\n",
		"long line": event(
			"ADDED",
			`{"metadata":{"name":"big","resourceVersion":"1"},"data":"`+strings.Repeat("x", 3*watchBuffer)+`"}`,
		) + "\n" + event(
			"ADDED",
			small("b"),
		) + "\n",
		"very long line": event(
			"ADDED",
			`{"metadata":{"name":"big","resourceVersion":"1"},"data":"`+strings.Repeat("x", scale.Of(20, 200)*watchBuffer)+`"}`,
		) + "\n" + strings.Repeat(
			event("ADDED", small("b"))+"\n",
			2,
		),
	}
	for name, raw := range odd() {
		s["odd: "+name] = event("ADDED", raw) + "\n" + event("MODIFIED", small("b")) + "\n"
	}
	return s
}

func TestWatch(t *testing.T) {
	for name, stream := range streams(t) {
		t.Run(name, func(t *testing.T) {
			checkWatch(t, stream, 1, "")
			checkWatch(t, stream, 2, "5")
			checkWatch(t, stream, 3, "0")
		})
	}
}

// A document that is not a watch event ends the watch behind the good ones, and is not quoted: it may hold a secret.
func TestWatchMalformed(t *testing.T) {
	for name, bad := range map[string]string{
		"text":                       "<html>Bad gateway</html>",
		"torn in a string":           `{"type":"ADDED","object":{"metadata":{"name":"a`,
		"torn between members":       `{"type":"ADDED","object":{`,
		"torn behind a key":          `{"type":"ADDED","object":{"a":`,
		"torn, many brackets":        `{"type":"ADDED","object":{"a":[[[{"b":{`,
		"one bracket too many":       event("ADDED", small("a")) + "}",
		"two events on a line":       event("ADDED", small("a")) + " " + event("ADDED", small("b")),
		"a number":                   "5",
		"null":                       "null",
		"an array":                   "[" + event("ADDED", small("a")) + "]",
		"bytes":                      "\x00\x01\xff{",
		"valid JSON, no event":       `{"kind":"Status","apiVersion":"v1"}`,
		"an unknown type":            event("RENAMED", small("a")),
		"a type in lower case":       event("added", small("a")),
		"no type":                    `{"object":` + small("a") + "}",
		"null for an object":         event("ADDED", "null"),
		"an object without version":  event("MODIFIED", `{"metadata":{"name":"a"}}`),
		"a bookmark without version": event("BOOKMARK", `{}`),
		"an event on several lines":  "{\n \"type\": \"ADDED\",\n \"object\": " + small("a") + "\n}",
	} {
		t.Run(name, func(t *testing.T) {
			stream := event("ADDED", small("before")) + "\n" + bad + "\n" + event("ADDED", small("after")) + "\n"
			d := NewWatchDecoder(io.NopCloser(strings.NewReader(stream)), "5", false)
			if _, o, err := d.Decode(); err != nil || o.(*Object).Name != "before" {
				t.Fatalf("%v, %v", o, err)
			}
			_, o, err := d.Decode()
			if o != nil || !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v, %v", o, err)
			}
			if strings.Contains(err.Error(), "html") {
				t.Errorf("the error quotes the document: %v", err)
			}
		})
	}
}

// A stream that is cut off within a document ends with io.ErrUnexpectedEOF, and everything before the cut arrives.
func TestWatchCutOff(t *testing.T) {
	first, second := event("ADDED", small("a"))+"\n", event("ADDED", small("b"))
	for n := 1; n < len(second); n++ {
		r := decodeWatch(io.NopCloser(strings.NewReader(first+second[:n])), "")
		if len(r.Events) != 1 || r.End != io.ErrUnexpectedEOF.Error() {
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
		size, events int
		end          string
	}{{20 << 20, 2, "EOF"}, {MaxDocument, 0, "larger than the maximum size of a document"}} {
		r := decodeWatch(io.NopCloser(io.MultiReader(big(test.size), strings.NewReader(small))), "")
		if len(r.Events) != test.events || !strings.Contains(r.End, test.end) {
			t.Errorf("%d bytes: %d events, end %s", test.size, len(r.Events), r.End)
		}
		if test.events == 2 && len(r.Events[0].Object.Raw) < test.size {
			t.Error("the object was cut")
		}
	}
}

type letters struct{}

var manyLetters = strings.Repeat("x", watchBuffer)

func (letters) Read(p []byte) (int, error) {
	return copy(p, manyLetters), nil // byte by byte is slow with the race detector
}
