// Package console formats text for a terminal: it colors, pads, truncates and wraps.
//
// Widths are in terminal cells: an East Asian wide character has two, a combining character none. The package neither
// writes to the terminal nor queries it. [Clean] escapes control characters, so that the escape sequences of
// [Style.Paint] are the only ones in the output.
package console
