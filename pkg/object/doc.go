// Package object holds an API object as the JSON bytes that the API server sent, plus what the bridge needs of its
// metadata, and the codec with which client-go carries such objects.
//
// # Bytes
//
// [Object.Raw] is, byte for byte, what the API server sent, less metadata.managedFields (with one comma), and for an
// item of a typed LIST with "kind" and "apiVersion" put in front, which the API server leaves out there: a payload is
// the same whether a LIST or a WATCH brought it. It is a copy of exactly that size: an object keeps neither the body
// of its list nor the buffer of its watch alive. No string of an [Identity] points into Raw, so that an identity may
// outlive its object.
//
// # Identity
//
// Identity and owners are what encoding/json finds in the same bytes when it decodes level by level into
// map[string]json.RawMessage: keys match exactly (not by letter case) after their escapes are resolved; of equal keys
// the last one counts, with nothing merged from those before it; a value of another type than expected counts as
// absent; invalid UTF-8 in a string becomes U+FFFD. So no object that is valid JSON is ever refused, however odd.
//
// # What is not JSON
//
// Documents are scanned, not validated: the scan checks brackets, quotes, colons and commas only as far as it needs
// them to find its way. Bytes that pass it without being JSON travel on as they are.
//
// A LIST whose body has no end is an error as a whole: a part of a list must not be taken for all of it. An item that
// is no JSON object (null, a number) has no identity and is left out.
//
// On a WATCH, each line is a document. One that is not a watch event (not JSON, an unknown type, an object without
// resourceVersion on a watch that has one) never becomes an object: it ends the watch with an error.
package object
