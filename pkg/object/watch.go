package object

import (
	"io"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchOptions say how a WatchDecoder behaves. The zero value is usable.
type WatchOptions struct {
	// ResourceVersion at which the watch was opened; empty if it starts with what is there.
	ResourceVersion string
	// ManagedFields keeps each object's managedFields. See Object.ManagedFieldsJSON.
	ManagedFields bool
}

// WatchDecoder reads the events of a watch from the body of the response. It implements watch.Decoder of apimachinery.
//
// A watch event is an object with a known "type" and an "object", on a line of its own. The object must have a
// resourceVersion, except that of an ERROR, and on a watch where nothing had one so far: a Reflector takes the position
// of its watch from each event, and would watch on from nowhere, deaf to the deletions in between.
type WatchDecoder struct {
	body      io.ReadCloser
	frames    *frames
	parser    parser
	versioned bool // the watch has resourceVersions
}

var _ watch.Decoder = (*WatchDecoder)(nil)

// NewWatchDecoder reads from body, which Close closes.
func NewWatchDecoder(body io.ReadCloser, options WatchOptions) *WatchDecoder {
	return &WatchDecoder{
		body: body, frames: newFrames(body), parser: parser{keepManaged: options.ManagedFields},
		versioned: options.ResourceVersion != "" && options.ResourceVersion != "0",
	}
}

// Decode waits for the next event and returns its type and an *Object, or for an ERROR a *metav1.Status. The object
// shares no memory with the stream. The error is io.EOF at the end of the stream, io.ErrUnexpectedEOF if it ends
// within an event, or wraps ErrMalformed if the next document is not a watch event; Decode is of no use after an error.
func (d *WatchDecoder) Decode() (watch.EventType, runtime.Object, error) {
	doc, err := d.frames.next()
	if err != nil {
		return "", nil, err
	}
	eventType, obj := d.event(doc)
	switch {
	case obj != nil:
		return eventType, obj, nil
	case doc[len(doc)-1] != '\n':
		return "", nil, io.ErrUnexpectedEOF
	default:
		return "", nil, malformed("not a watch event", len(doc))
	}
}

// Close closes the body, which ends a Decode that waits.
func (d *WatchDecoder) Close() { d.body.Close() }

// event parses one document; the object is nil if it is not a watch event.
func (d *WatchDecoder) event(doc []byte) (watch.EventType, runtime.Object) {
	if eventType, at := fastEnvelope(doc); at > 0 && eventType != watch.Error {
		end := d.parser.parse(doc, at)
		// The scan has found where the object ends. If more than the envelope's brace follows, it was another document
		// than it seemed.
		if end > 0 && end < len(doc) && doc[end] == '}' && jsonscan.Space(doc, end+1) == len(doc) {
			return d.accept(eventType, doc, at, end)
		}
	}
	eventType, object, ok := envelope(doc)
	switch {
	case !ok:
		return "", nil
	case eventType == watch.Error:
		return eventType, decodeStatus(doc[object.start:object.end])
	case d.parser.parse(doc, object.start) != object.end:
		return "", nil
	}
	return d.accept(eventType, doc, object.start, object.end)
}

func (d *WatchDecoder) accept(eventType watch.EventType, doc []byte, start, end int) (watch.EventType, runtime.Object) {
	if len(d.parser.resourceVersion) > 0 {
		d.versioned = true
	} else if d.versioned {
		return "", nil
	}
	return eventType, d.parser.object(doc, start, end, "")
}

// fastEnvelope reads the start of the envelope as kube-apiserver writes it: {"type":"ADDED","object":{... It returns
// where the object starts, 0 if the document starts otherwise.
func fastEnvelope(doc []byte) (watch.EventType, int) {
	const before, between = `{"type":"`, `","object":`
	if len(doc) < len(before) || string(doc[:len(before)]) != before {
		return "", 0
	}
	for _, t := range [...]watch.EventType{watch.Modified, watch.Added, watch.Deleted, watch.Bookmark, watch.Error} {
		at := len(before) + len(t)
		if len(doc) > at+len(between) && string(doc[len(before):at]) == string(t) && string(doc[at:at+len(between)]) == between {
			if at += len(between); doc[at] == '{' {
				return t, at
			}
			return "", 0
		}
	}
	return "", 0
}

// envelope finds type and object of a watch event in any JSON. It returns false for all other documents.
func envelope(doc []byte) (eventType watch.EventType, object span, ok bool) {
	start := jsonscan.Space(doc, 0)
	if start == len(doc) || doc[start] != '{' {
		return "", span{}, false
	}
	w := open(doc, start)
	for w.next() {
		switch string(w.key) {
		case "type":
			eventType = watch.EventType(w.text())
		case "object":
			at := w.pos
			w.skip()
			object = span{at, w.pos}
		default:
			w.skip()
		}
	}
	if end := w.end(); end < 0 || jsonscan.Space(doc, end) != len(doc) {
		return "", span{}, false
	}
	switch eventType {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
		return "", span{}, false
	}
	return eventType, object, object.end > 0 && doc[object.start] == '{'
}
