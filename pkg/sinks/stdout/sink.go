package stdout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// chunk is the approximate number of bytes per write.
const chunk = 256 << 10

// Sink writes to an io.Writer. Like every sinks.Sink, it must be used by only one goroutine.
type Sink struct {
	w    io.Writer
	buf  []byte
	torn bool // the last written line is incomplete

	// A write that hangs can still be running after its Send has returned. The next Send and Close wait for it.
	writing bool
	writes  chan written // receives the result of the write
}

type written struct {
	n   int
	err error
}

var _ sinks.Sink = (*Sink)(nil)

// New returns a sink that writes to w. The sink does not close w.
func New(w io.Writer) *Sink { return &Sink{w: w, writes: make(chan written, 1)} }

// Connect implements sinks.Sink. There is nothing to connect to.
func (s *Sink) Connect(ctx context.Context) error { return ctx.Err() }

// Part implements sinks.Sink. Standard output has no parts.
func (*Sink) Part(*event.Message) string { return "" }

// Close implements sinks.Sink. It waits until the current write ends or ctx ends.
func (s *Sink) Close(ctx context.Context) error {
	if _, err := s.await(ctx); s.writing {
		return fmt.Errorf("stdout: a write has not finished: %w", err)
	}
	return nil
}

// Send implements sinks.Sink.
func (s *Sink) Send(ctx context.Context, batch []*event.Message, results []error) {
	// The number of lines is ignored: the lines of an earlier Send were reported as failed and are sent again.
	_, err := s.await(ctx)
	for err == nil && len(batch) > 0 {
		n := s.fill(batch)
		s.writing = true
		go func() {
			n, err := s.w.Write(s.buf)
			s.writes <- written{n, err}
		}()
		var settled int
		settled, err = s.await(ctx)
		clear(results[:settled])
		if s.writing {
			for i := range n {
				results[i] = err
			}
			settled = n
		}
		batch, results = batch[settled:], results[settled:]
	}
	for i := range batch { // later messages must not overtake the failed one
		results[i] = sinks.ErrNotAttempted
	}
	if err != nil && len(batch) > 0 {
		results[0] = err
	}
}

// fill fills buf with lines, one per message, up to about the size of a chunk. It returns the number of lines.
func (s *Sink) fill(batch []*event.Message) (n int) {
	s.buf = s.buf[:0]
	if s.torn {
		s.buf = append(s.buf, '\n')
	}
	for n < len(batch) && len(s.buf) < chunk {
		start := len(s.buf)
		s.buf = batch[n].AppendStructured(s.buf)
		oneLine(s.buf[start:])
		s.buf = append(s.buf, '\n')
		n++
	}
	return n
}

// oneLine replaces line breaks with spaces. In valid JSON, line breaks can occur only between tokens.
func oneLine(line []byte) {
	for i := bytes.IndexAny(line, "\r\n"); i >= 0; i = bytes.IndexAny(line, "\r\n") {
		line[i] = ' '
		line = line[i+1:]
	}
}

// await waits for the current write, if there is one. It returns the number of complete lines that were written.
func (s *Sink) await(ctx context.Context) (lines int, err error) {
	if !s.writing {
		return 0, ctx.Err()
	}
	select {
	case w := <-s.writes:
		s.writing = false
		if w.n == 0 {
			return 0, reason(w.err)
		}
		lines = bytes.Count(s.buf[:w.n], []byte{'\n'})
		if s.torn {
			lines--
		}
		s.torn = s.buf[w.n-1] != '\n'
		return lines, reason(w.err)
	case <-ctx.Done():
		return 0, sinks.MaybeWritten(ctx.Err())
	}
}

func reason(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("standard output was closed by the reading process: %w", err)
	}
	return err
}
