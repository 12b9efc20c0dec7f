// Package config reads the bridge's configuration file, sets defaults and validates all values. It reports all mistakes
// in the file at once, each with its line, its column and a remedy.
//
// # Guarantees
//
//   - Load and Parse return either a valid Config or an error, never both. In a valid Config, the defaults are set, the
//     templates can be parsed, the rules can be compiled, and the referenced files exist and are readable. LoadOffline
//     guarantees the same, except that the files need not exist.
//   - In addition to the mistakes that package strictyaml reports, values that contradict each other are mistakes.
//   - The file contains no secrets. Keys that end in File name the files that contain secrets. A URL that contains a
//     password is rejected, and the message does not repeat the password.
//   - If the file is empty, the defaults apply. See Default.
//
// # Paths
//
// Paths of input files, such as `kubeconfig`, are relative to the directory of the configuration file, so the files can
// be moved together. Paths of data that the bridge writes (`state.path`, `storeDir`) are relative to the working
// directory.
//
// # Where a key is defined
//
// A key is defined by a struct field: the doc comment is the documentation, and the struct tags contain the rules (see
// package strictyaml). If only one package uses a section of the file, the section is a struct of this package. For
// example, a filter is a filter.Rule. The configuration of a destination is the type Config of its package under
// pkg/sinks. This type implements sinks.Config and is the type of a field in Destinations.
//
// The command `go test ./internal/config -update` generates docs/configuration.md and schema.json from these structs,
// and tests verify that the two files are current. The schema accepts every file that Parse accepts, and Parse rejects
// every file that the schema rejects. Only Parse detects contradictions and mistakes within strings.
package config
