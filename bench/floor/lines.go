package main

import (
	"bytes"
	"errors"
	"io"
)

// chunkSize is how much is read into one piece of memory, which lines then share.
const chunkSize = 256 << 10

// each hands over the lines of a stream: count of them, or with 0 all. Lines are not copied, but for those that lie
// across the end of a chunk.
func each(r io.Reader, count int, hand func(line []byte) error) error {
	chunk := make([]byte, chunkSize)
	start, end := 0, 0 // of what is read and not handed over
	handed := 0
	for {
		n, err := r.Read(chunk[end:])
		fresh := end // a line's end can only be in what is new
		end += n
		for {
			at := bytes.IndexByte(chunk[fresh:end], '\n')
			if at < 0 {
				break
			}
			if err := hand(chunk[start : fresh+at : fresh+at]); err != nil {
				return err
			}
			fresh += at + 1
			start = fresh
			if handed++; handed == count {
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF) && count > 0:
			return io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if end == len(chunk) {
			size := chunkSize
			for size < 2*(end-start) {
				size *= 2
			}
			next := make([]byte, size)
			end = copy(next, chunk[start:end])
			chunk, start = next, 0
		}
	}
}
