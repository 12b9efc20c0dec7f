package main

import (
	"bufio"
	"errors"
	"io"
)

// readBuffer is how much is read from the connection at once.
const readBuffer = 64 << 10

// each hands over the lines of a stream: count of them, or with 0 all. Each line has memory of its own, since nats.go
// keeps it until it is acknowledged. (Lines that share the memory into which they were read would save a quarter of the
// floor's CPU in replay; this is the program that one would write.)
func each(r io.Reader, count int, hand func(line []byte) error) error {
	lines := bufio.NewReaderSize(r, readBuffer)
	for handed := 0; count == 0 || handed < count; handed++ {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && count == 0:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if err := hand(line[:len(line)-1]); err != nil {
			return err
		}
	}
	return nil
}
