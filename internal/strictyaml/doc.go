// Package strictyaml decodes YAML into structs. It is strict, applies defaults, and reports all mistakes at once, each
// with its line, its column and a remedy.
//
// # Guarantees
//
//   - Mistakes are unknown keys, duplicate keys, values of the wrong type or out of range, and missing required keys. A
//     mistake does not hide other mistakes. The exception is a file that is not valid YAML: only the first syntax error
//     is reported. At most one mistake is reported for each value.
//   - Nothing is guessed. A key without a value is a mistake, and so is a number where a string is required.
//   - The file contains no secrets. If the key `passwordFile` exists, the key `password` is rejected, and the message
//     names `passwordFile`. It does not repeat the value.
//   - A value can refer to environment variables: ${NAME}, or ${NAME:-default}, whose default applies if the variable
//     is not set or empty. $${ stands for ${. References are replaced after the text was parsed, so a variable can
//     contain any characters, but never adds keys or entries. The key determines the type of the result. A variable
//     that is not set and has no default is a mistake. Keys contain no references.
//   - Anchors, aliases, merge keys and tags are rejected, because they could give one value several positions, and a
//     message can report only one position. The file contains at most one document.
//
// # Structs
//
// A struct describes an object in the file. Its fields can be strings, booleans, integers (int), sizes in bytes
// (int64), durations (time.Duration), structs, pointers to structs (nil if the key is missing), lists, and maps whose
// keys are strings. A *yaml.Node is a value of any type, which is not decoded. Fields without the yaml tag are ignored.
// The tags are:
//
//	yaml      the key; ",inline" for an embedded struct, whose keys belong to the struct around it
//	default   the value if the key is not given, as YAML
//	example   an example of a value, as YAML, which is also a remedy in messages
//	required  the key must be given
//	enum      the valid values
//	min, max  the bounds of an integer, a size or a duration
//	format    "file": the string is the path of a readable file (see also DecodeOffline); a relative path is relative
//	          to the directory of the YAML file. "commas": a list of strings that is written as one string with commas
//	pattern   a regular expression that a string, or each entry of a list, must match; only for the schema
//	entries   the valid entries of a list; only for the schema
//	minItems  "1": the list must have an entry
//	oneOf     exactly one of the keys of the struct that have this tag must be given; only for the schema
//
// A struct checks everything else in its method Validate, which is called with a [Section].
//
// # How it works
//
// The package go.yaml.in/yaml/v4 parses the text into a tree of nodes, each with a line and a column. The decoder walks
// the tree and the struct types in parallel, and records the node of each value.
//
// Libraries do less: KnownFields of yaml.v4 accepts a number where a string is required, has no defaults for entries of
// lists, and does not provide the position of a value after decoding. Strict of goccy/go-yaml stops at the first
// mistake. A JSON Schema validator reports patterns rather than remedies, and leaves decoding, defaults and positions
// to the caller.
package strictyaml
