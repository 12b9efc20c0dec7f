//go:build !unix

package main

import "os"

// onResyncSignal does nothing: there is no such signal here.
func onResyncSignal(chan<- os.Signal) (stop func()) { return func() {} }
