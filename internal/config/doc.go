// Package config reads the configuration file of the bridge into defaulted and validated values, with every mistake of
// the file reported at once, each with its line, its column and what to do about it.
//
// # What is promised
//
//   - Load and Parse return a Config that holds, or *strictyaml.Errors; never half of each. A Config that they return
//     has its defaults filled in, its templates parse, its rules compile, its files are there and can be read.
//   - A mistake is what package strictyaml takes for one, and values that contradict each other.
//   - No secret is in the file. What is secret is named by a key that ends in File; a URL with a password in it is
//     rejected, and not repeated in the message.
//   - An empty file means the defaults, see Default.
//
// # Paths
//
// The paths of files to read, `kubeconfig` among them, are relative to the directory of the configuration file, so that
// the two can be moved together. The paths of what the bridge writes (`state.path`, `storeDir`) are relative to the
// working directory.
//
// # Where a key is
//
// What a key means is at its struct field: the doc comment for people, and tags (package strictyaml). A part of the
// file that is the business of one package is a struct of that package: a destination is the Config of its package
// under pkg/sinks, which implements sinks.Config, and is registered as a field of Destinations; a filter is a
// filter.Rule.
//
// docs/configuration.md and schema.json are generated from them by `go test ./internal/config -update`, and tests
// compare. The schema takes whatever Parse takes, and what it rejects Parse rejects too; contradictions and the
// contents of strings are for Parse alone.
package config
