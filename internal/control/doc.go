// Package control connects commands to a running bridge on the same machine. It uses HTTP over a Unix socket in the
// state directory. Only the user that the bridge runs as can open the socket.
package control
