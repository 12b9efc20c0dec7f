// Package config reads the configuration file of the bridge: strict YAML into defaulted and validated values, with
// every mistake of the file reported at once, each with its line, its column and what to do about it.
//
// # What is promised
//
//   - Load and Parse return a Config that holds, or *Errors; never half of each. A Config that they return has its
//     defaults filled in, its templates parse, its rules compile, its files are there and can be read.
//   - A mistake is a key that does not exist, a key given twice, a value of the wrong type or out of its range, a
//     required key that is missing, or values that contradict each other. One mistake does not hide another. The
//     exception is text that is no YAML at all: nothing behind the first such place can be read.
//   - Nothing is guessed. A key without a value is a mistake, and so is a number where a text is wanted.
//   - No secret stands in the text. What is secret is named by a key that ends in File; a key such as `password`
//     and a URL with a password in it are refused, and what they hold is not repeated in the message.
//
// # YAML
//
// One document, or none: an empty file means the defaults (see Default). Anchors, aliases, merge keys and tags are
// refused: they would put a value in two places, and a message could name only one of them.
//
// # Paths
//
// The paths of File keys, `kubeconfig` among them, are relative to the folder of the configuration file, so that
// the two can be moved together. The paths of what the bridge writes (`state.path`, `storeDir`) are relative to the
// working directory.
//
// # How it works
//
// yaml.v3 makes a tree of nodes, which know their line and column; a small decoder (decode.go) walks tree and
// struct types side by side, and remembers where each value came from, so that validation (validate.go) can report
// positions as well. What a key means stands at its struct field: the doc comment for people, and these tags:
//
//	yaml      its name
//	default   the value if the key is not given, as YAML
//	example   a value that shows what it looks like, as YAML
//	required  the key has to be given
//	enum      the values that it can have
//	min, max  the bounds of a number, a size or a duration
//	pattern   a regular expression that a text, or each entry of a list, matches; for the schema, validation is exact
//	entries   the values that an entry of a list can have; for the schema
//	minItems  how many entries a list has at least; for the schema
//	oneOf     of the keys of the struct that have it exactly one is given; for the schema
//	gone      a value that it had once, why it is gone, and what to do: "value: why; remedy"
//	later     values, or on a blank field the key itself, that a later version will have
//
// docs/configuration.md and schema.json are generated from them by `go test ./internal/config -update`, and tests
// compare. The schema takes whatever Parse takes, and what it refuses Parse refuses too; contradictions and the contents
// of texts are for Parse alone.
//
// Other decoders were considered. yaml.v3's KnownFields reports all unknown keys, but no columns; goccy/go-yaml has
// columns, but stops at the first mistake; neither tells where a value came from once it is decoded.
package config
