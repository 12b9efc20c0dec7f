// Package console lays text out for a person at a terminal: colors, columns, and texts cut or wrapped to a width.
//
// Widths are in cells of a terminal: an East Asian wide character takes two, a combining one none. Nothing here writes
// or asks the terminal anything; what is printed holds no control characters but the escapes of [Style.Paint], whatever
// the text was made of ([Clean]).
package console
