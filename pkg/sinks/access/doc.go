// Package access contains the code that the packages of all brokers need to connect. It reads files with certificates
// and secrets, and explains failed connections.
//
// Files are read every time they are needed, so they can be rotated while the bridge runs. Errors are
// [sinks.ConnectError]: they contain the step, the address and the configuration key, but never the content of a file.
package access
