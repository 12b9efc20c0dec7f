// Package redact replaces secret values in the bytes of an object with keyed fingerprints: it stays visible that a
// value has changed, but not the value.
//
// # What is hidden
//
//   - the values in `data` and `stringData` of a Secret, but not their keys;
//   - the annotation kubectl.kubernetes.io/last-applied-configuration of every kind, anywhere in the object, and in
//     Secrets also those of other tools that repeat the whole object;
//   - the values that the paths of a [Rule] name.
//
// If a path leads to an object or a list, each string, number and boolean inside is replaced, and the structure stays.
// Null stays. Letter case and escapes in keys do not matter, and each of several equal keys counts: everything is
// hidden that some reader could take for the value. A part that is not valid JSON is replaced as a whole.
//
// # Fingerprints
//
// A fingerprint is a JSON string: "hmac-sha256:" and 32 hexadecimal digits. It is an HMAC-SHA256 of the value, its
// place in the object, and the resource, namespace and name of the object, so it changes if and only if the value
// changes. Without the key nobody can try guesses, however short the value is. Because the place is included, nobody
// who can write other objects can try guesses by comparing fingerprints. 12 of the 16 bytes depend on the value. The
// other 4 prove that the string is a fingerprint made with the key. Such strings stay as they are, so redacting twice
// is the same as redacting once.
//
// # Ownership
//
// [Redactor.Redact] never writes to its argument. If nothing is to be hidden, it returns the same slice; otherwise the
// result belongs to the caller. Everything else stays the same, byte by byte: order, white space and numbers.
package redact
