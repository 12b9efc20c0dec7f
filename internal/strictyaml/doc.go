// Package strictyaml decodes YAML into structs. It is strict, applies defaults, and reports all mistakes at once, each
// with its line, its column and a remedy.
//
// # Guarantees
//
//   - A mistake is an unknown key, a key that is given twice, a value of the wrong type or out of its range, or a
//     required key that is missing. A mistake does not hide others, except if the text is not YAML: then only the first
//     error of syntax is reported. A value has at most one mistake.
//   - Nothing is guessed. A key without a value is a mistake, and so is a number where a string is required.
//   - The file contains no secrets. If `passwordFile` exists, the key `password` is rejected, and no message repeats
//     its value.
//   - Anchors, aliases, merge keys and tags are rejected: they give one value several places, and a message can name
//     only one of them. The file has at most one document.
//
// # Structs
//
// A struct describes an object in the file. Its fields are strings, booleans, integers (int), sizes in bytes (int64),
// durations (time.Duration), structs, pointers to structs (nil if not given), lists of strings or structs, and maps of
// strings. Fields without the tag yaml are not in the file. The tags:
//
//	yaml      the key; ",inline" for a struct whose keys belong to the struct around it
//	default   the value if the key is not given, as YAML
//	example   an example of a value, as YAML
//	required  the key must be given
//	enum      the valid values
//	min, max  the bounds of an integer, a size or a duration
//	format    "file": the string is the path of a readable file; a relative path is relative to the directory of the
//	          YAML file. "commas": a list of strings that is written as one string with commas
//	pattern   a regular expression that a string, or each entry of a list, must match; only for the schema
//	entries   the valid entries of a list; only for the schema
//	minItems  the minimum number of entries of a list; only for the schema
//	oneOf     exactly one of the keys of the struct that have this tag must be given; only for the schema
//
// A struct checks everything else in a method Validate, whose argument is its [Section]. [Check] runs the same checks
// on values that do not come from a file.
//
// # How it works
//
// go.yaml.in/yaml/v4 parses the text into a tree of nodes that have a line and a column. A small decoder walks the tree
// and the struct types at the same time, and keeps the node of each value. Neither yaml.v4 (KnownFields) nor
// goccy/go-yaml reports all mistakes with line and column, or says where a value came from after it is decoded.
package strictyaml
