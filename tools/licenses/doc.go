// Command licenses lists the licenses of the modules that bridge is made of, and refuses those that are not allowed.
//
//	licenses -dir DIR [-update]
//
// The list is THIRD_PARTY.md. Without -update the command compares: a list that is out of date is an error, and so is,
// in both cases, a license that is not allowed. Versions are not in it, so that only a new module changes it.
package main
