// Package modules says which Go modules a program is made of, and under which licenses they stand.
//
// Contract: what is linked counts, not what go.mod lists. Licenses are recognized from the texts in the module cache,
// never guessed; a module without a text that is recognized is an error.
package modules
