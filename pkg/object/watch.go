package object

import (
	"errors"
	"io"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchOptions say how a WatchDecoder behaves. The zero value is usable.
type WatchOptions struct {
	// ResourceVersion at which the watch was opened; empty if it starts with what is there.
	ResourceVersion string
	// Malformed is called for each document that is no watch event, with an error that wraps ErrMalformed. Nil goes
	// on behind the document; an error is what Decode returns. A nil function ends the stream with
	// io.ErrUnexpectedEOF, after which a Reflector opens its watch again.
	Malformed func(error) error
	// ManagedFields keeps each object's managedFields until it is forgotten or released. See Object.ManagedFieldsJSON.
	ManagedFields bool
}

// WatchDecoder reads the events of a watch from the body of the response. It implements watch.Decoder of apimachinery.
//
// A watch event is an object with a known "type" and an "object". The object must have a resourceVersion, except that
// of an ERROR, and on a watch where nothing had one so far: a Reflector takes the position of its watch from each
// event, and would watch on from nowhere, deaf to the deletions in between.
type WatchDecoder struct {
	body      io.ReadCloser
	frames    *frames
	skip      func(error) error
	parse     func([]byte) bool // event, bound once
	parser    parser
	versioned bool // the watch has resourceVersions

	// The event that was found last.
	eventType watch.EventType
	object    runtime.Object
}

var _ watch.Decoder = (*WatchDecoder)(nil)

// NewWatchDecoder reads from body, which Close closes.
func NewWatchDecoder(body io.ReadCloser, options WatchOptions) *WatchDecoder {
	d := &WatchDecoder{
		body: body, frames: newFrames(body), skip: options.Malformed,
		parser:    parser{keepManaged: options.ManagedFields},
		versioned: options.ResourceVersion != "" && options.ResourceVersion != "0",
	}
	if d.skip == nil {
		d.skip = func(error) error { return io.ErrUnexpectedEOF }
	}
	d.parse = d.event
	return d
}

// Decode waits for the next event and returns its type and an *Object, or for an ERROR a *metav1.Status. The object
// shares no memory with the stream. The error is io.EOF at the end of the stream, io.ErrUnexpectedEOF if it ends
// within an event, or what WatchOptions.Malformed returned; Decode is of no use after an error.
func (d *WatchDecoder) Decode() (watch.EventType, runtime.Object, error) {
	if err := d.frames.next(d.parse, d.skip); err != nil {
		return "", nil, err
	}
	object := d.object
	d.object = nil // not to be held while the next event is awaited
	return d.eventType, object, nil
}

// Close closes the body, which ends a Decode that waits.
func (d *WatchDecoder) Close() { d.body.Close() }

// event parses one document; false if it is no watch event.
func (d *WatchDecoder) event(doc []byte) bool {
	if eventType, at := fastEnvelope(doc); at > 0 && eventType != watch.Error {
		end := d.parser.parse(doc, at)
		// The scan has found where the object ends. If more than the envelope's brace follows, it was another document
		// than it seemed.
		if end > 0 && end < len(doc) && doc[end] == '}' && jsonscan.Space(doc, end+1) == len(doc) {
			return d.accept(eventType, doc, at, end)
		}
	}
	eventType, object, ok := envelope(doc)
	if !ok {
		return false
	}
	if eventType == watch.Error {
		d.eventType, d.object = eventType, decodeStatus(doc[object.start:object.end])
		return true
	}
	if d.parser.parse(doc, object.start) != object.end {
		return false
	}
	return d.accept(eventType, doc, object.start, object.end)
}

func (d *WatchDecoder) accept(eventType watch.EventType, doc []byte, start, end int) bool {
	if len(d.parser.resourceVersion) > 0 {
		d.versioned = true
	} else if d.versioned {
		return false
	}
	d.eventType, d.object = eventType, d.parser.object(doc, start, end, "")
	return true
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

// envelope finds type and object of a watch event in any JSON. It is false for all other documents.
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

// envelopeCodec decodes the events that framer lets through, for client-go's stream decoder.
type envelopeCodec struct{ codec }

var errNotEvent = errors.New("not a watch event")

// Decode implements runtime.Decoder. The Raw that it sets aliases data, which the codec copies from.
func (envelopeCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, errNotEvent
	}
	eventType, object, ok := envelope(data)
	if !ok {
		return nil, nil, errNotEvent
	}
	event.Type, event.Object.Raw = string(eventType), data[object.start:object.end]
	return event, nil, nil
}
