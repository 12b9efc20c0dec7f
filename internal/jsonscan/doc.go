// Package jsonscan finds where JSON values end, without a look into them, and walks over members and elements so found.
//
// It knows JSON (RFC 8259) only as far as it must: strings, and brackets by their depth, both kinds together, since in valid
// JSON they match. It is iterative, so that deep nesting costs no stack, and scanning allocates nothing. It never panics on what is
// no JSON; whether a text is JSON is for others to find out. Offsets are absolute in the scanned bytes.
package jsonscan
