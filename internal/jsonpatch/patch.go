package jsonpatch

import "encoding/json"

// AppendPatch appends the changes as a JSON Patch document (RFC 6902).
func AppendPatch(dst []byte, changes []Change) []byte {
	dst = append(dst, '[')
	for n := range changes {
		c := &changes[n]
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"op":"`...), c.Op...)
		dst = append(dst, `","path":`...)
		dst = AppendString(dst, string(appendPointer(nil, c.Path, c.at)))
		if c.Op != Remove {
			dst = append(append(dst, `,"value":`...), c.Value...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// AppendKey appends a comma if required, the name of the next member, and a colon. dst must end with '{' or with the
// previous member.
func AppendKey(dst []byte, name string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(AppendString(dst, name), ':')
}

// AppendString appends s as a JSON string. Nearly all values are printable ASCII characters that need no escape.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always marshals
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
