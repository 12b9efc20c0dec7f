// Package jsonscan finds where JSON values end without parsing them, and iterates over members and elements.
//
// It understands only as much JSON (RFC 8259) as this requires: strings, and the nesting depth of brackets. It counts
// braces and square brackets together, because they match in valid JSON. It does not recurse, so deep nesting uses no
// stack, and scanning does not allocate. It does not validate: callers must pass valid JSON, but other input never
// makes it panic. Offsets are relative to the start of the scanned bytes.
package jsonscan
