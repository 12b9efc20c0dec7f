// Package jsonpatch computes the difference between two JSON documents, as RFC 6902 operations.
//
// The package works on bytes. It skips values with equal bytes without parsing them, and copies values from the new
// document into the patch. Numbers of any size and precision therefore stay exact. The cost depends on the size of the
// documents and the number of changes, not on the number of values.
//
// # Contract
//
// If the operations of [Diff] are applied to the old document, the result has the same values as the new document, but
// object members can have a different order. Only strings with different escapes count as equal. The numbers 1 and 1.0
// differ, because a consumer may distinguish them. The documents must be valid JSON without duplicate keys, as API
// servers write them. Invalid values, objects with duplicate keys, and values nested deeper than 500 levels are
// replaced as a whole. No input causes a panic.
//
// List elements are aligned before they are compared. Objects are aligned by the members that identify elements in
// Kubernetes lists, other elements by equal bytes. Inserting a container is therefore one addition, not a change of all
// containers after it.
package jsonpatch
