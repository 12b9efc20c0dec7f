// Package assemble builds the parts of an [engine.Engine] from a validated configuration. [Options] builds all parts.
// The other functions build single parts, for commands that use only these. The package does not run anything.
package assemble
