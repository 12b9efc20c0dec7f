package object

import (
	"bufio"
	"errors"
	"io"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// MaxDocument is the maximum size in bytes of a document in a watch. The default limit of etcd is 1.5 MiB, but an API
// server with its own storage may serve larger objects.
const MaxDocument = 64 << 20

// watchBuffer is the size in bytes of a watch's read buffer after the first line that is longer than bufio's default
// size. Most watches have small objects and rarely receive an event.
const watchBuffer = 16 << 10

// WatchDecoder reads the events of a watch from a response body. It implements watch.Decoder of apimachinery.
//
// kube-apiserver writes each event as compact JSON on a separate line. Compact JSON contains no newlines, so the
// decoder can split the stream into lines without parsing the JSON.
//
// A watch event has a known "type" and an "object". The object must have a resourceVersion, except in an ERROR event,
// and except if no object of the watch has had one so far. A Reflector updates the position of its watch with each
// event. If the position were empty, it would miss deletions.
type WatchDecoder struct {
	body      io.ReadCloser
	reader    *bufio.Reader
	long      []byte // line that is longer than reader's buffer, or the last line
	parser    parser
	versioned bool // the objects of this watch have a resourceVersion
}

var _ watch.Decoder = (*WatchDecoder)(nil)

// NewWatchDecoder returns a decoder that reads from body. Close closes the body. resourceVersion is the version at
// which the watch was opened. It is empty if the watch begins with the existing objects. If keepManaged is set, the
// objects keep their managedFields; see Object.ManagedFieldsJSON.
func NewWatchDecoder(body io.ReadCloser, resourceVersion string, keepManaged bool) *WatchDecoder {
	return &WatchDecoder{
		body: body, reader: bufio.NewReader(body), parser: parser{keepManaged: keepManaged},
		versioned: resourceVersion != "" && resourceVersion != "0",
	}
}

// Decode waits for the next event. It returns the event's type and an *Object, or a *metav1.Status for an ERROR event.
// The object shares no memory with the stream. The error is io.EOF at the end of the stream, and io.ErrUnexpectedEOF if
// the stream ends within an event. It wraps ErrMalformed if the next document is not a watch event. Decode must not be
// called again after an error.
func (d *WatchDecoder) Decode() (watch.EventType, runtime.Object, error) {
	for {
		line, err := d.line()
		if err != nil {
			return "", nil, err
		}
		if jsonscan.Space(line, 0) == len(line) {
			continue
		}
		eventType, obj := d.event(line)
		switch {
		case obj != nil:
			return eventType, obj, nil
		case line[len(line)-1] != '\n':
			return "", nil, io.ErrUnexpectedEOF
		default:
			return "", nil, malformed("not a watch event", len(line))
		}
	}
}

// Close closes the body. A blocked Decode then returns.
func (d *WatchDecoder) Close() { d.body.Close() }

// line returns the next line. The line includes its newline, which may be missing from the last line, and is valid
// until the next call. The error is the error of the stream, or wraps ErrMalformed.
func (d *WatchDecoder) line() ([]byte, error) {
	d.long = d.long[:0]
	for {
		part, err := d.reader.ReadSlice('\n')
		if err == nil && len(d.long) == 0 {
			return part, nil
		}
		if size := len(d.long) + len(part); size > MaxDocument {
			return nil, malformed("larger than the maximum size of a document", size)
		}
		d.long = append(d.long, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // part is the whole content of the buffer
			if d.reader.Size() < watchBuffer {
				d.reader = bufio.NewReaderSize(d.body, watchBuffer)
			}
		case err == nil, errors.Is(err, io.EOF) && len(d.long) > 0: // the next call returns the end of the stream
			return d.long, nil
		default:
			return nil, err
		}
	}
}

// event parses one document. It returns a nil object if the document is not a watch event.
func (d *WatchDecoder) event(doc []byte) (watch.EventType, runtime.Object) {
	var eventType watch.EventType
	var object span
	w := jsonscan.Open(doc, 0, '{')
	for w.Next() {
		switch string(w.Key) {
		case "type":
			eventType = eventTypeOf(w.Text())
		case "object":
			object.start = w.Pos
			w.Leave(d.parser.parse(doc, w.Pos))
			object.end = w.Pos
		default:
			w.Skip()
		}
	}
	switch {
	case !isObject(doc, jsonscan.Space(doc, 0), w.End()), eventType == "", doc[object.start] != '{' || object.end == 0:
		return "", nil
	case eventType == watch.Error:
		return eventType, decodeStatus(doc[object.start:object.end])
	case len(d.parser.resourceVersion) > 0:
		d.versioned = true
	case d.versioned:
		return "", nil
	}
	return eventType, d.parser.object(doc, object.start, object.end, nil)
}

// eventTypeOf returns the type of an event, or "" if text is not a known type. It does not allocate.
func eventTypeOf(text []byte) watch.EventType {
	for _, t := range [...]watch.EventType{watch.Modified, watch.Added, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(text) == string(t) {
			return t
		}
	}
	return ""
}
