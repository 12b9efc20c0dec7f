// Command licenses lists the licenses of the modules in bridge, and checks that they are allowed.
//
//	licenses -dir DIR [-update]
//
// With -update the command writes the list to THIRD_PARTY.md. Without, it fails if the list is out of date. In both
// cases it fails if a license is not allowed. The list has no versions, so that it changes only if a module is added or
// removed.
package main
