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

// chunk is about how many bytes are written at once.
const chunk = 256 << 10

// Sink writes to one io.Writer. Like every sinks.Sink it is used by one goroutine.
type Sink struct {
	w    io.Writer
	buf  []byte
	ends []int // ends[i] is where the i-th line of buf ends
	torn bool  // the last line that was written is not whole

	// writes has the outcome of the one write that may be under way. The writer's goroutine ends with it. A write
	// that hangs outlives its Send; the next Send and Close wait for it.
	writes  chan written
	writing bool
}

type written struct {
	n   int
	err error
}

var _ sinks.Sink = (*Sink)(nil)

// New returns a sink that writes to w, which it does not close.
func New(w io.Writer) *Sink { return &Sink{w: w, writes: make(chan written, 1)} }

// Connect implements sinks.Sink. There is nothing to connect to.
func (s *Sink) Connect(ctx context.Context) error { return ctx.Err() }

// Close implements sinks.Sink. It waits for a write that is still under way until ctx ends.
func (s *Sink) Close(ctx context.Context) error {
	if err := s.settle(ctx); err != nil {
		return fmt.Errorf("stdout: a write hangs: %w", err)
	}
	return nil
}

// Send implements sinks.Sink.
func (s *Sink) Send(ctx context.Context, batch []*event.Message, results []error) {
	err := s.settle(ctx)
	for err == nil && len(batch) > 0 {
		var settled int // lines with a result
		n := s.fill(batch)
		settled, err = s.write(ctx)
		clear(results[:settled])
		if sinks.IsMaybeWritten(err) {
			for i := range n {
				results[i] = err
			}
			settled = n
		}
		batch, results = batch[settled:], results[settled:]
	}
	for i := range batch { // none of them may overtake the one that failed
		results[i] = sinks.ErrNotAttempted
	}
	if err != nil && len(batch) > 0 {
		results[0] = err
	}
}

// fill puts lines into buf, one for each message, until it is large enough. It returns how many.
func (s *Sink) fill(batch []*event.Message) int {
	s.buf, s.ends = s.buf[:0], s.ends[:0]
	if s.torn {
		s.buf = append(s.buf, '\n')
	}
	for _, m := range batch {
		start := len(s.buf)
		s.buf = m.AppendStructured(s.buf)
		oneLine(s.buf[start:])
		s.buf = append(s.buf, '\n')
		s.ends = append(s.ends, len(s.buf))
		if len(s.buf) >= chunk {
			break
		}
	}
	return len(s.ends)
}

// oneLine replaces line breaks, which in valid JSON stand only between tokens.
func oneLine(line []byte) {
	for i := bytes.IndexAny(line, "\r\n"); i >= 0; i = bytes.IndexAny(line, "\r\n") {
		line[i] = ' '
		line = line[i+1:]
	}
}

// write writes buf, and returns how many of its lines were written whole.
func (s *Sink) write(ctx context.Context) (int, error) {
	s.writing = true
	go func() {
		n, err := s.w.Write(s.buf)
		s.writes <- written{n, err}
	}()
	select {
	case w := <-s.writes:
		return s.outcome(w)
	case <-ctx.Done():
		return 0, sinks.MaybeWritten(ctx.Err())
	}
}

func (s *Sink) outcome(w written) (lines int, err error) {
	s.writing = false
	for lines < len(s.ends) && s.ends[lines] <= w.n {
		lines++
	}
	if w.n > 0 {
		s.torn = s.buf[w.n-1] != '\n'
	}
	err = w.err
	if err == nil && w.n < len(s.buf) {
		err = io.ErrShortWrite
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		err = fmt.Errorf("nobody reads the output any more: %w", err)
	}
	return lines, err
}

// settle waits for a write that outlived its Send. Its lines are written again, for their Send has reported them.
func (s *Sink) settle(ctx context.Context) error {
	if !s.writing {
		return ctx.Err()
	}
	select {
	case w := <-s.writes:
		_, _ = s.outcome(w)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
