// Package control connects commands to running bridges. On the same machine, it uses HTTP over a Unix socket in the
// state directory, which only the user that the bridge runs as can open. If no process uses the directory, a command
// goes to the HTTP port of the leader, which ReadStatus finds among the addresses of all replicas. There,
// internal/guard decides whether the command is accepted.
package control
