// Package mutant breaks the bridge on purpose, to show that the chaos test finds it.
//
// On is a constant false in each ordinary build, so that the compiler leaves out what depends on it. In a build with the tag
// chaosmutants it is true for the one mutant that the environment variable DELTABRIDGE_MUTANT names.
package mutant
