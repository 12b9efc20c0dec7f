// Package console formats text for a terminal: it colors, pads, truncates and wraps.
//
// Widths are in terminal cells: an East Asian wide character takes two cells, a combining character none. The package
// neither writes to the terminal nor queries it. [Clean] escapes control characters, so only [Style.Paint] adds escape
// sequences to the output.
package console
