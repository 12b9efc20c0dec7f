// Package jsonscan finds where JSON values end without parsing them, and iterates over members and elements.
//
// It interprets only the parts of JSON (RFC 8259) that this requires: strings, and the nesting depth of brackets. It
// counts braces and square brackets together, because they match in valid JSON. It does not recurse, so deep nesting
// does not use the stack. Scanning allocates memory only for keys that contain escapes or non-ASCII bytes. It does not
// validate: callers should pass valid JSON, but invalid input never causes a panic. Offsets are relative to the start
// of the scanned bytes.
package jsonscan
