// Package console formats what commands print: text for a terminal, and JSON.
//
// The package does not query the terminal. [Clean] escapes control characters, so only [Style.Paint] adds escape
// sequences to the output.
package console
