package object

import (
	"testing"
)

func FuzzNew(f *testing.F) {
	for _, name := range []string{"pod.json", "configmap.json", "widget.json", "status.json", "bookmark.json"} {
		f.Add([]byte(read(f, name)))
	}
	for _, raw := range odd() {
		f.Add([]byte(raw))
	}
	for _, raw := range notObjects() {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkObject(t, b)
		if o, err := New(b); err == nil {
			callAccessors(o)
		}
	})
}

func FuzzList(f *testing.F) {
	for _, name := range []string{"podlist.json", "widgetlist.json"} {
		f.Add([]byte(read(f, name)))
	}
	for _, raw := range oddLists() {
		f.Add([]byte(raw))
	}
	for _, raw := range odd() {
		f.Add([]byte(`{"kind":"AList","apiVersion":"v1","items":[` + raw + `,` + raw + `]}`))
	}
	f.Fuzz(checkList)
}

func FuzzWatch(f *testing.F) {
	for _, stream := range streams(f) {
		if len(stream) < 1<<16 {
			f.Add(stream, uint64(1), "")
			f.Add(stream, uint64(2), "5")
		}
	}
	f.Fuzz(checkWatch)
}
