// Package access is what brokers' packages share to get in: files with certificates and secrets, and words for what
// fails on the way.
//
// Files are read each time that they are needed, never once and for all, so that they can be rotated while the bridge
// runs. Every error is a [sinks.ConnectError]: it names the step, the address and the configuration key, and never
// repeats what is in a file with a secret.
package access
