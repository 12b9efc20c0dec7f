package informer

import (
	"bufio"
	"context"
	"net"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// connBuffer is the number of bytes that are read from a connection to the API server at a time. Under load, net/http
// would read 4 KiB per system call, and TLS one record. That costs more than all further processing of the bytes.
const connBuffer = 64 << 10

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// buffered returns a dial function whose connections read through a buffer of connBuffer bytes. If dial is nil,
// reach.Dial is used.
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

// bufferedConn is a connection with a read buffer. Only one goroutine may read from it at a time.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }
