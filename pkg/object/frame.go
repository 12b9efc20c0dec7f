package object

import (
	"bufio"
	"errors"
	"io"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// MaxDocument is the size in bytes up to which a document of a watch is read. etcd takes 1.5 MiB by default; an API
// server with a storage of its own may serve more.
const MaxDocument = 64 << 20

const (
	quietBuffer = 4 << 10  // for each watch, as long as it lasts: most of them bring an event now and then
	readBuffer  = 32 << 10 // of a watch that brought so many lines without a pause
	busyLines   = 64
	keepBuffer  = 1 << 20 // a buffer for longer lines is not kept if it grew beyond
)

// frames cuts a watch into documents.
//
// kube-apiserver writes each watch event compact, on a line of its own (apiserver's watch handler ends each with a
// newline), and no newline can occur in compact JSON. So a line is one document, found without looking at it.
type frames struct {
	r    *bufio.Reader
	busy int    // lines behind which the buffer held more; -1: r has its full size
	long []byte // a line that is longer than r's buffer
}

func newFrames(r io.Reader) *frames {
	return &frames{r: bufio.NewReaderSize(r, quietBuffer)}
}

// next returns the next line that is not blank, with its newline; the last one may have none. It is valid until the
// next call. The error is that of the stream, io.EOF at its end, or wraps ErrMalformed.
func (f *frames) next() ([]byte, error) {
	for {
		line, err := f.line()
		if err != nil || jsonscan.Space(line, 0) < len(line) {
			return line, err
		}
	}
}

func (f *frames) line() ([]byte, error) {
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

// grow gives a busy stream a larger buffer. The line that was read last is valid as before: it is in the old one, from
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
	for {
		part, err := f.r.ReadSlice('\n')
		if size := len(f.long) + len(part); size > MaxDocument {
			f.long = nil
			return nil, malformed("larger than MaxDocument", size)
		}
		f.long = append(f.long, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return f.long, err
		}
	}
}
