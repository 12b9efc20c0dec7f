// Package redact puts keyed fingerprints in the place of secret values, on the bytes of an object: that a value changed
// stays visible, the value does not.
//
// # What is hidden
//
//   - the values in `data` and `stringData` of a Secret; their keys stay;
//   - the annotation kubectl.kubernetes.io/last-applied-configuration of every kind, wherever in the object it stands,
//     and in Secrets those of other tools that repeat the whole object too;
//   - what the paths of a [Rule] name.
//
// Of an object or list that is to be hidden the form stays, and each text, number and boolean inside it is replaced. Null
// stays. Letter case of keys does not matter, escapes in them neither, and of equal keys each one counts: what some reader
// might take for the value is hidden. A part that is no JSON is replaced as a whole.
//
// # Fingerprints
//
// A fingerprint is the JSON string "hmac-sha256:" and 32 hexadecimal digits, whatever it stands for. It is an
// HMAC-SHA256 of the value, its place in the object, and resource, namespace and name of the object: it changes if and only
// if the value does. Without the key a guess can't be tried, however short the value; and because the place is in it,
// whoever may write another object can't try one either by comparing. Of 16 bytes 12 are the value's, and 4 tell whoever
// has the key that the text is a fingerprint: those stay as they are, so that to redact twice is to redact once.
//
// # Ownership
//
// What [Redactor.Redact] is given is never written to. Its result is the very same slice if nothing is to be hidden, and
// belongs to the caller otherwise. Nothing but what is replaced changes: order, spaces and numbers stay, byte by byte.
package redact
