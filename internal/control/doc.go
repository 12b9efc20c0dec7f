// Package control is the way from commands to a running bridge on the same machine: HTTP over a Unix socket in the
// state directory, which only the user of the bridge can open.
package control
