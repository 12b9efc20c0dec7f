package natsconn

import (
	"net"
	"strings"

	natsgo "github.com/nats-io/nats.go"
)

// CountServers connects and returns the number of servers that clients can use: those of the URLs and those that the
// server advertises.
func (a *Access) CountServers() (int, error) {
	opts, _, err := a.options()
	if err != nil {
		return 0, err
	}
	conn, err := natsgo.Connect(strings.Join(a.URLs, ","), append(opts, natsgo.NoReconnect(),
		natsgo.Timeout(min(connectTimeout, a.Timeout)))...)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	given, advertised := len(a.URLs), len(conn.DiscoveredServers())
	if _, addr, err := serverAddress(a.URLs[0]); err == nil {
		// Servers advertise addresses. nats.go does not count those that the URLs already have.
		if host, _, _ := net.SplitHostPort(addr); net.ParseIP(host) != nil {
			return given + advertised, nil
		}
	}
	return max(given, advertised), nil
}
