// Package object represents an API object as the JSON bytes that the API server sent, together with the parts of its
// metadata that the bridge requires. It also contains the codec that lets client-go decode such objects.
//
// # Bytes
//
// [Object.Raw] contains exactly the bytes that the API server sent, with two exceptions. First, metadata.managedFields
// is removed, together with one comma. Second, the API server omits "kind" and "apiVersion" for the items of a typed
// LIST, so they are inserted at the start of the item. A payload is therefore the same whether the object was read from
// a LIST or from a WATCH. Raw is a copy of exactly the required size, so an object does not keep the body of its list
// or the buffer of its watch in memory. No string of an [Identity] points into Raw, so an identity does not keep Raw in
// memory.
//
// # Identity
//
// The values of the identity and of the owners are those that encoding/json would return if each level were decoded
// into a map[string]json.RawMessage:
//
//   - Keys must match exactly, including case, after their escapes are resolved.
//   - Of several equal keys, the last one counts. Its value is not merged with the values before it.
//   - A value that has an unexpected type counts as absent.
//   - Invalid UTF-8 in a string becomes U+FFFD.
//
// So every object that is valid JSON is accepted, even if its content is unusual.
//
// # Invalid JSON
//
// Documents are scanned, but not validated: the scan checks brackets, quotes, colons and commas only as far as it
// requires them to find the end of each value. Invalid JSON that passes the scan is forwarded unchanged.
//
// If the body of a LIST is truncated, the whole LIST fails, because a part of a list must not be mistaken for the
// complete list. An item that is not a JSON object, for example null or a number, has no identity and is skipped.
//
// On a WATCH, each line is a document. A document that is not a watch event ends the watch with an error, and never
// becomes an object. Examples are documents that are not JSON, have an unknown type, or contain an object without a
// resourceVersion although other objects of the watch have one.
package object
