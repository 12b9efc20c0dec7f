package main

import (
	"bufio"
	"errors"
	"io"
)

// readBuffer is the size of a read from the connection.
const readBuffer = 64 << 10

// each passes count lines of a stream to a function, or all lines if count is 0. Each line is copied, because nats.go
// keeps it until it is acknowledged. (Without the copy the floor would use a quarter less CPU in replay, but a typical
// program would copy too.)
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
