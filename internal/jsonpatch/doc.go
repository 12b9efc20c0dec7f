// Package jsonpatch computes the difference between two JSON documents, as RFC 6902 operations and as an RFC 7386 merge
// patch.
//
// It works on bytes: it skips values that are equal byte for byte without parsing them, and copies values from the new
// document into the patch. So numbers of any size and precision are exact, and the cost depends on the size of the
// documents and the number of changes, not on the number of values.
//
// # Contract
//
// The operations of [Diff], applied to the old document, give the new one: the same values, but not necessarily the
// same order of members. Different spellings of one value count as equal only for strings: 1 and 1.0 differ, because a
// consumer may tell them apart. The documents must be JSON without duplicate keys, as every API server writes it.
// Values that are not, and values nested deeper than 500 levels, are replaced as a whole. No input causes a panic.
//
// Elements of lists are aligned first: objects by the members that identify elements in Kubernetes lists, others by
// equal bytes. So an inserted container is one addition, and not a change of all containers after it.
package jsonpatch
