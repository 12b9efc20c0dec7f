// Package certs makes authorities and certificates for tests: for servers on loopback and for clients, valid or not.
package certs
