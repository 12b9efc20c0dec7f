package object

import (
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// endless repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func watchOf(b *testing.B, name string) io.ReadCloser {
	line := event("MODIFIED", read(b, name)) + "\n"
	b.SetBytes(int64(len(line)))
	return io.NopCloser(&endless{text: line})
}

// One watch event, from the bytes of the connection to an Object.
func BenchmarkWatch(b *testing.B) {
	for _, name := range []string{"pod", "configmap", "widget"} {
		b.Run(name, func(b *testing.B) {
			d := NewWatchDecoder(watchOf(b, name+".json"), "", false)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/unstructured", func(b *testing.B) { // the object alone: what is avoided
			raw := []byte(read(b, name+".json"))
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := (&unstructured.Unstructured{}).UnmarshalJSON(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The body of a LIST of 500 pods.
func BenchmarkList(b *testing.B) {
	pod := read(b, "pod.json")
	item := "{" + pod[strings.Index(pod, `"metadata"`):]
	body := []byte(
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + strings.Repeat(
			item+",",
			499,
		) + item + `]}`,
	)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		l := &List{}
		if err := l.decode(body); err != nil || len(l.Items) != 500 {
			b.Fatal(err)
		}
	}
}
