// Package registry gives tests a real schema registry: Apicurio Registry, which has the API of the Confluent Schema
// Registry, on loopback.
//
// It requires Java 17 or newer. The first use copies its archive into .work/registry in the
// repository (109 MB, once; see package maven). Where Java is missing, tests are skipped with the reason; with
// the environment variable CI set they fail instead. A start takes about ten seconds. The registry keeps its schemas in
// memory, so they are lost when it stops.
package registry
