// Package redact replaces secret values in the bytes of an object with keyed fingerprints. A consumer can see that a
// value has changed, but cannot see the value.
//
// # Hidden values
//
//   - the values in `data` and `stringData` of a Secret, but not the keys;
//   - the annotation kubectl.kubernetes.io/last-applied-configuration in objects of every kind, at any depth;
//   - in Secrets, the annotations in which other tools store a copy of the whole object;
//   - the values at the paths of a [Rule].
//
// If a path leads to an object or a list, every string, number and boolean inside is replaced. The structure and null
// values remain unchanged. Letter case and escapes in keys do not matter, and if a key occurs several times, every
// value of the key is replaced, so every value that any JSON parser could read is hidden. Invalid JSON inside a value
// is replaced as a whole.
//
// # Fingerprints
//
// A fingerprint is a JSON string: "hmac-sha256:" followed by 32 hexadecimal digits. It is an HMAC-SHA256 of the value,
// its location in the object, and the resource, namespace and name of the object. Therefore the fingerprint changes if
// and only if the value changes. Without the key, nobody can test guesses, even for a short value. Because the location
// is included, a user who can write other objects cannot test guesses by comparing fingerprints either. 12 of the 16
// bytes depend on the value. The other 4 bytes prove that the string is a fingerprint that was created with the key.
// Such strings are not replaced, so redacting twice has the same result as redacting once.
//
// # Ownership
//
// [Redactor.Redact] never writes to its argument. If there is nothing to hide, it returns the same slice; otherwise the
// caller owns the result. All other bytes remain unchanged, including order, white space and numbers.
package redact
