// Package jsonpatch computes what differs between two JSON documents, as RFC 6902 operations and as an RFC 7386 merge
// patch.
//
// It works on the bytes: what is equal byte for byte is passed over without a look into it, and values go into the patch as
// they stand in the new document. So numbers of any size and precision are exact, and the cost follows the size of the
// documents and the number of changes, not the number of values in them.
//
// # Contract
//
// The operations of [Diff], applied to the old document, give the new one: the same values, if not in the same order of
// members. Two texts of one value count as equal only for strings: 1 and 1.0 differ, since a reader may take them for
// different things. The documents must be JSON without duplicate keys, as every API server writes them; on anything else,
// and nested deeper than 500 levels, the difference is one replacement of what can't be compared. Nothing panics.
//
// Elements of lists are aligned first: by equal bytes, and for objects by the members that name things in Kubernetes, so
// that an inserted container is an addition and not a change of all that follow.
package jsonpatch
