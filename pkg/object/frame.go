package object

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// MaxDocument is the size in bytes up to which a document of a watch is read. etcd takes 1.5 MiB by default; an API
// server with a storage of its own may serve more. What is larger is passed over, without being held in memory.
const MaxDocument = 64 << 20

const (
	quietBuffer = 4 << 10  // for each watch, for ever: most of them bring an event now and then
	readBuffer  = 32 << 10 // of a watch that brought so many lines without a pause
	busyLines   = 64
	keepBuffer  = 1 << 20 // a buffer for longer lines is not kept if it grew beyond
)

// frames cuts a stream into JSON documents.
//
// kube-apiserver writes each watch event compact, on a line of its own (apiserver's watch handler ends each with a
// newline), and no newline can occur in compact JSON. So a line is one document, found without looking at it, and
// whoever reads the document finds out whether that is true. If not, the lines from there on are joined to the next
// document by a real JSON decoder: pretty-printed ones, and several on a line.
type frames struct {
	r       *bufio.Reader
	busy    int    // lines behind which the buffer held more; -1: r has its full size
	long    []byte // a line that is longer than r's buffer
	pending []byte // whole lines that were read but not used, before what r has
	torn    int    // how many bytes of pending were read behind a torn document: no document is joined of them
}

func newFrames(r io.Reader) *frames {
	return &frames{r: bufio.NewReaderSize(r, quietBuffer)}
}

// next finds the next document that parse takes. For each one that it does not take, or that is no JSON, skip decides
// with a nil that the search goes on behind it. next returns the error of skip or of the stream: io.EOF at its end,
// io.ErrUnexpectedEOF within a document.
func (f *frames) next(parse func(doc []byte) bool, skip func(error) error) error {
	for {
		torn := f.torn > 0
		doc, err := f.line()
		if err == nil {
			if parse(doc) {
				return nil
			}
			if !torn {
				doc, err = f.join(doc)
			}
			if err == nil {
				if !torn && parse(doc) {
					return nil
				}
				err = malformed("not a watch event", len(doc))
			}
		}
		if !errors.Is(err, ErrMalformed) {
			return err
		}
		if err := skip(err); err != nil {
			return err
		}
	}
}

// line returns the next line that is not blank, with its newline; the last one may have none. It is valid until the
// next call.
func (f *frames) line() ([]byte, error) {
	for {
		line, err := f.anyLine()
		if err != nil || jsonscan.Space(line, 0) < len(line) {
			return line, err
		}
	}
}

func (f *frames) anyLine() ([]byte, error) {
	if len(f.pending) > 0 {
		line := f.pending
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		f.pending = f.pending[len(line):]
		f.torn = max(0, f.torn-len(line))
		return line, nil
	}
	line, err := f.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = f.longLine(line)
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the next call gives the end
	}
	if err != nil {
		return nil, err
	}
	f.grow()
	return line, nil
}

// grow gives a busy stream a larger buffer. The line that was read last is valid as before: it lies in the old one, from
// which the new one reads what is left when it is asked for the next line.
func (f *frames) grow() {
	switch {
	case f.busy < 0:
	case f.r.Buffered() == 0:
		f.busy = 0
	case f.busy < busyLines:
		f.busy++
	default:
		f.r, f.busy = bufio.NewReaderSize(f.r, readBuffer), -1
	}
}

// longLine reads on from the start of a line that fills r's buffer.
func (f *frames) longLine(start []byte) ([]byte, error) {
	if cap(f.long) > keepBuffer {
		f.long = nil
	}
	f.long = append(f.long[:0], start...)
	size := len(start)
	for {
		part, err := f.r.ReadSlice('\n')
		if size += len(part); size <= MaxDocument {
			f.long = append(f.long, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case size > MaxDocument:
			f.long = nil
			return nil, malformed("larger than MaxDocument", size)
		}
		return f.long, err
	}
}

// join returns the JSON document that starts with the line, or an error that wraps ErrMalformed and has passed over at
// least that line. What follows the document on its last line is the next line.
func (f *frames) join(line []byte) ([]byte, error) {
	if line[jsonscan.Space(line, 0)] != '{' {
		return nil, malformed("not a JSON object", len(line))
	}
	feed := &lineFeed{frames: f, read: bytes.Clone(line)}
	decoder := json.NewDecoder(feed)
	var doc json.RawMessage
	err := decoder.Decode(&doc)
	if err == nil {
		f.pending = append(feed.read[decoder.InputOffset():], f.pending...)
		return doc, nil
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) && !errors.Is(err, ErrMalformed) {
		return nil, err
	}
	// The document that starts in the first line is torn. The lines behind it may be good events, all but the last each
	// on its own; the last one, where the error is, was not looked at beyond it and may start anything. The decoder
	// reads a line only when all before it was good so far.
	first := bytes.IndexByte(feed.read, '\n') + 1
	if feed.last > 0 {
		f.torn = feed.last - first
		f.pending = append(feed.read[first:], f.pending...)
	}
	return nil, fmt.Errorf("%w: %w (in %d bytes)", ErrMalformed, err, len(feed.read))
}

// lineFeed gives a JSON decoder whole lines, one at a time and only as it asks for them.
type lineFeed struct {
	frames *frames
	read   []byte // all lines since the document began
	last   int    // where the last line starts in read
	given  int    // how much of read the decoder has
}

// Read implements io.Reader.
func (l *lineFeed) Read(p []byte) (int, error) {
	if l.given == len(l.read) {
		line, err := l.frames.anyLine()
		if err != nil {
			return 0, err
		}
		if len(l.read)+len(line) > MaxDocument {
			l.last = len(l.read)
			l.read = append(l.read, line...)
			return 0, malformed("larger than MaxDocument", len(l.read))
		}
		l.last = len(l.read)
		l.read = append(l.read, line...)
	}
	n := copy(p, l.read[l.given:])
	l.given += n
	return n, nil
}

// framer gives client-go's stream decoder the documents of a stream that are watch events.
type framer struct{}

// NewFrameWriter implements runtime.Framer.
func (framer) NewFrameWriter(w io.Writer) io.Writer { return w }

// NewFrameReader implements runtime.Framer.
func (framer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &frameReader{Closer: r, frames: newFrames(r)}
}

type frameReader struct {
	io.Closer
	frames *frames
	rest   []byte // of the current document
}

// Read gives one document, over several calls with io.ErrShortBuffer if p is too small for it: the contract of
// streaming.NewDecoder.
func (r *frameReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		err := r.frames.next(func(doc []byte) bool {
			r.rest = bytes.TrimSpace(doc)
			_, _, ok := envelope(doc)
			return ok
		}, func(error) error { return nil })
		if err != nil {
			r.rest = nil
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	if len(r.rest) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}
