// Package freeport reserves TCP ports for the servers of tests.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are below the range from which systems take the ports of outgoing connections (from 32768 on Linux): while a
// server is down, no client gets its port, nor connects to itself.
const first, end = 10000, 30000

// reserved are sockets that keep the ports of this process from other processes that reserve ports, until it ends: a
// server that is stopped must find its ports free again.
var reserved struct {
	sync.Mutex

	sockets []net.PacketConn
}

// Reserve returns ports of 127.0.0.1 on which nobody listens. No other call of Reserve returns them, in any process, as
// long as this process runs.
func Reserve(count int) (found []int, err error) {
	for range 100 * (count + 1) {
		if len(found) == count {
			return found, nil
		}
		port := first + rand.IntN(end-first)
		socket, err := net.ListenPacket("udp", Address(port))
		if err != nil {
			continue
		}
		reserved.Lock()
		reserved.sockets = append(reserved.sockets, socket)
		reserved.Unlock()
		l, err := net.Listen("tcp", Address(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		found = append(found, port)
	}
	return nil, fmt.Errorf("no free ports between %d and %d", first, end)
}

// Address returns the address of a port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
