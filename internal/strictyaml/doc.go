// Package strictyaml reads YAML into structs: strictly, with defaults, and with every mistake reported at once, each with its
// line, its column and what to do about it.
//
// # What is promised
//
//   - A mistake is a key that does not exist, a key given twice, a value of the wrong type or out of its range, or a required key
//     that is missing. One mistake does not hide another, except for text that is not YAML at all: nothing behind the first such
//     place can be read. A value has one mistake at most.
//   - Nothing is guessed. A key without a value is a mistake, and so is a number where a string is required.
//   - No secret is in the file. A key such as `password`, where `passwordFile` exists, is rejected, and no message repeats its value.
//   - Anchors, aliases, merge keys and tags are rejected: they would put a value in two places, and a message could name only one
//     of them. There is one document, or none.
//
// # Structs
//
// A struct describes an object of the file. Its fields are strings, booleans, numbers (int), sizes in bytes (int64), time.Durations,
// structs, pointers to structs, which are nil if not given, lists of strings and of structs, and maps of strings. Fields without the
// tag yaml are not for the file. The tags:
//
//	yaml      its name; ",inline" for a struct whose keys are those of the struct around it
//	default   the value if the key is not given, as YAML
//	example   a value that shows what it looks like, as YAML
//	required  the key has to be given
//	enum      the values that it can have
//	min, max  the bounds of a number, a size or a duration
//	format    "file": a string that is the path of a readable file; a relative one is joined with the directory of the YAML file.
//	          "commas": a list of strings that is written as one string, with commas between them
//	pattern   a regular expression that a string, or each entry of a list, matches; for the schema
//	entries   the values that an entry of a list can have; for the schema
//	minItems  how many entries a list has at least; for the schema
//	oneOf     of the keys of the struct that have it exactly one is given; for the schema
//	gone      a value that it had once, why it is gone, and what to do: "value: why; remedy"
//
// What tags can't say, a struct checks itself in a method Validate, which is given its [Section]. Values that were made without a
// file are checked by the same code: [Check].
//
// # How it works
//
// yaml.v3 makes a tree of nodes, which know their line and column; a small decoder walks tree and struct types side by side, and
// remembers where each value came from. Other decoders were considered. yaml.v3's KnownFields reports all unknown keys, but no
// columns; goccy/go-yaml has columns, but stops at the first mistake; neither says where a value came from once it is decoded.
package strictyaml
