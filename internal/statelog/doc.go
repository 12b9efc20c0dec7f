// Package statelog keeps a copy of the checkpoint in a log in a broker.
package statelog
