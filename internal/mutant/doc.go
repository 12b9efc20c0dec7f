// Package mutant breaks the bridge on purpose, to show that the chaos test detects it.
//
// In an ordinary build On always returns false, so the compiler removes the code that depends on it. In a build with
// the tag chaosmutants it returns true for the one mutant that the environment variable DELTABRIDGE_MUTANT names.
package mutant
