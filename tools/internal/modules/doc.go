// Package modules lists the Go modules in a program and their licenses.
//
// It lists the modules that are linked into the program, not those in go.mod. It recognizes licenses by their texts in
// the module cache. A module without a recognized license is an error.
package modules
