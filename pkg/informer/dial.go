package informer

import (
	"bufio"
	"context"
	"net"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// connBuffer is how much is read from a connection to the API server at a time. Under load net/http would ask the
// kernel for 4 KiB at a time, and TLS for a record, which costs more than all that is done with the bytes.
const connBuffer = 64 << 10

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// buffered makes connections that are read in large pieces. dial may be nil.
func buffered(dial dialFunc) dialFunc {
	if dial == nil {
		dial = reach.Dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &bufferedConn{conn, bufio.NewReaderSize(conn, connBuffer)}, nil
	}
}

// bufferedConn is a connection with a buffer for reading. As of any connection, one goroutine at a time may read.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }
