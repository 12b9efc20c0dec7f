// Package console formats text for a terminal.
//
// The package neither writes to the terminal nor queries it. [Clean] escapes control characters, so only [Style.Paint]
// adds escape sequences to the output.
package console
