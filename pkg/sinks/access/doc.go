// Package access is what the packages of all brokers need to connect: it reads files with certificates and secrets, and
// explains failed connections.
//
// Files are read each time that they are needed, so that they can be rotated while the bridge runs. Errors are
// [sinks.ConnectError]: they name the step, the address and the configuration key, and never repeat the content of a
// file.
package access
