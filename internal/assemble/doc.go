// Package assemble makes the parts of an [engine.Engine] of a configuration that was checked: [Options] all of them,
// and the other functions the parts that commands use by themselves. It runs nothing.
package assemble
